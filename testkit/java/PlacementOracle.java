import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

/**
 * Where Kafka's own controller places the partitions of new topics.
 *
 * A line of the standard input is a cluster and its topics: a rack for each broker, "-" for none and "!" before that of
 * a broker that is fenced, with "," between; then for each topic PARTITIONS:FACTOR. The output has a line for each
 * topic: the replicas of its partitions, with ";" between, and "," between the replicas.
 */
public final class PlacementOracle {
    private record Cluster(List<UsableBroker> brokers) implements ClusterDescriber {
        @Override
        public Iterator<UsableBroker> usableBrokers() {
            return brokers.iterator();
        }

        @Override
        public Uuid defaultDir(int brokerId) {
            return Uuid.randomUuid();
        }
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StripedReplicaPlacer placer = new StripedReplicaPlacer(new Random(17));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] fields = line.split(" ");
            Cluster cluster = cluster(fields[0].split(","));
            for (int i = 1; i < fields.length; i++) {
                String[] sizes = fields[i].split(":");
                PlacementSpec spec = new PlacementSpec(0, Integer.parseInt(sizes[0]), Short.parseShort(sizes[1]));
                System.out.println(placer.place(spec, cluster).assignments().stream()
                    .map(it -> it.replicas().stream().map(String::valueOf).collect(Collectors.joining(",")))
                    .collect(Collectors.joining(";")));
            }
        }
    }

    private static Cluster cluster(String[] racks) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (String rack : racks) {
            String name = rack.replace("!", "");
            Optional<String> named = name.equals("-") ? Optional.empty() : Optional.of(name);
            brokers.add(new UsableBroker(brokers.size() + 1, named, rack.startsWith("!")));
        }
        return new Cluster(brokers);
    }
}
