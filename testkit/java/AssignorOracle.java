import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * What Kafka's own assignors of the broker make of groups. The argument is "uniform", "range" or "simple".
 *
 * The standard input has groups. A line is a word and its fields, with spaces between; an empty field is "-".
 *
 *   topic  NUMBER  PARTITIONS  RACKS        RACKS: of each partition, with ";" between, those of its replicas, with "," between
 *   member  ID  RACK  INSTANCE  TOPICS  HAS   TOPICS: numbers with "," between; HAS: "topic:partition", with "," between
 *   assign
 *
 * For each "assign" the output has a line "ID HAS" for each member, and then "assigned".
 */
public final class AssignorOracle {
    private record Topic(int partitions, Map<Integer, Set<String>> racks) { }

    private final Map<Uuid, Topic> topics = new HashMap<>();
    private final Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
    private final Map<Uuid, Map<Integer, String>> owners = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        PartitionAssignor assignor = switch (arguments[0]) {
            case "range" -> new RangeAssignor();
            case "simple" -> new SimpleAssignor();
            default -> new UniformAssignor();
        };
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (AssignorOracle group; (group = read(lines)) != null; ) {
            System.out.print(group.assigned(assignor));
        }
    }

    private static AssignorOracle read(BufferedReader lines) throws IOException {
        AssignorOracle group = new AssignorOracle();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] fields = line.split(" ");
            switch (fields[0]) {
                case "topic" -> group.addTopic(fields);
                case "member" -> group.addMember(fields);
                default -> {
                    return group;
                }
            }
        }
        return null;
    }

    private void addTopic(String[] fields) {
        Map<Integer, Set<String>> racks = new HashMap<>();
        for (String its : several(fields[3], ";")) {
            racks.put(racks.size(), new HashSet<>(Arrays.asList(several(its, ","))));
        }
        topics.put(id(fields[1]), new Topic(Integer.parseInt(fields[2]), racks));
    }

    private void addMember(String[] fields) {
        Set<Uuid> subscribed = Arrays.stream(several(fields[4], ",")).map(AssignorOracle::id).collect(Collectors.toSet());
        Map<Uuid, Set<Integer>> has = new HashMap<>();
        for (String it : several(fields[5], ",")) {
            Uuid topic = id(it.split(":")[0]);
            int partition = Integer.parseInt(it.split(":")[1]);
            has.computeIfAbsent(topic, unused -> new HashSet<>()).add(partition);
            owners.computeIfAbsent(topic, unused -> new HashMap<>()).put(partition, fields[1]);
        }
        members.put(fields[1], new MemberSubscriptionAndAssignmentImpl(known(fields[2]), known(fields[3]), subscribed, new Assignment(has)));
    }

    private String assigned(PartitionAssignor assignor) {
        boolean alike = members.values().stream().map(MemberSubscriptionAndAssignmentImpl::subscribedTopicIds).distinct().count() <= 1;
        SubscriptionType type = alike ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        var answer = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return topics.containsKey(topic) ? topics.get(topic).partitions() : -1;
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return topics.get(topic).racks().getOrDefault(partition, Set.of());
            }
        });
        StringBuilder text = new StringBuilder();
        new TreeMap<>(answer.members()).forEach((member, part) -> {
            Set<String> has = new TreeSet<>();
            part.partitions().forEach((topic, partitions) -> partitions.forEach(it -> has.add(topic.getLeastSignificantBits() + ":" + it)));
            text.append(member).append(' ').append(has.isEmpty() ? "-" : String.join(",", has)).append('\n');
        });
        return text.append("assigned\n").toString();
    }

    private static Uuid id(String number) {
        return new Uuid(0, Long.parseLong(number));
    }

    private static Optional<String> known(String field) {
        return field.equals("-") ? Optional.empty() : Optional.of(field);
    }

    private static String[] several(String field, String between) {
        return field.equals("-") ? new String[0] : field.split(between);
    }
}
