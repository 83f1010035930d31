import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentMemberSpec;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.assignor.TopologyDescriber;

/**
 * What Kafka's own assignor of streams groups makes of groups.
 *
 * The standard input has groups. A line is a word and its fields, with spaces between; an empty field is "-".
 *
 *   subtopology  ID  TASKS  STATEFUL          STATEFUL: true or false
 *   member  ID  PROCESS  ACTIVE  STANDBY      ACTIVE, STANDBY: "subtopology:partition", with "," between
 *   assign  STANDBYS                          how many standbys a task shall have
 *
 * For each "assign" the output has a line "ID ACTIVE STANDBY" for each member, and then "assigned".
 */
public final class TaskAssignorOracle implements TopologyDescriber {
    private record Subtopology(int tasks, boolean stateful) { }

    private final Map<String, Subtopology> subtopologies = new TreeMap<>();
    private final Map<String, AssignmentMemberSpec> members = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        TaskAssignorOracle group = new TaskAssignorOracle();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] fields = line.split(" ");
            switch (fields[0]) {
                case "subtopology" -> group.subtopologies.put(fields[1], new Subtopology(Integer.parseInt(fields[2]), Boolean.parseBoolean(fields[3])));
                case "member" -> group.members.put(fields[1], new AssignmentMemberSpec(
                    Optional.empty(), Optional.empty(), tasks(fields[3]), tasks(fields[4]), Map.of(), fields[2], Map.of(), Map.of(), Map.of()));
                default -> {
                    System.out.print(group.assigned(fields[1]));
                    group = new TaskAssignorOracle();
                }
            }
        }
    }

    private String assigned(String standbys) {
        var answer = new StickyTaskAssignor().assign(new GroupSpecImpl(members, Map.of("num.standby.replicas", standbys)), this);
        StringBuilder text = new StringBuilder();
        new TreeMap<>(answer.members()).forEach((member, part) -> {
            if (!part.warmupTasks().isEmpty()) {
                throw new IllegalStateException("warm-up tasks");
            }
            text.append(member).append(' ').append(written(part.activeTasks())).append(' ').append(written(part.standbyTasks())).append('\n');
        });
        return text.append("assigned\n").toString();
    }

    @Override
    public List<String> subtopologies() {
        return List.copyOf(subtopologies.keySet());
    }

    @Override
    public int maxNumInputPartitions(String subtopology) {
        return subtopologies.get(subtopology).tasks();
    }

    @Override
    public boolean isStateful(String subtopology) {
        return subtopologies.get(subtopology).stateful();
    }

    private static Map<String, Set<Integer>> tasks(String field) {
        Map<String, Set<Integer>> found = new HashMap<>();
        for (String it : field.equals("-") ? new String[0] : field.split(",")) {
            found.computeIfAbsent(it.split(":")[0], unused -> new HashSet<>()).add(Integer.parseInt(it.split(":")[1]));
        }
        return found;
    }

    private static String written(Map<String, Set<Integer>> tasks) {
        Set<String> found = new TreeSet<>();
        tasks.forEach((subtopology, partitions) -> partitions.forEach(it -> found.add(subtopology + ":" + it)));
        return found.isEmpty() ? "-" : String.join(",", found);
    }
}
