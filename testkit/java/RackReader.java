import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

/** Reads partition 0 of a topic as a consumer in a rack, and prints the values and the replica that they came from. */
public final class RackReader extends Scenarios {
    /** Arguments: the broker, the topic, the rack, the isolation level, how many records. */
    public static void main(String[] arguments) {
        RackReader reader = new RackReader();
        reader.bootstrap = arguments[0];
        Map<String, Object> config = Map.of("client.rack", arguments[2], "isolation.level", arguments[3], "max.partition.fetch.bytes", 200);
        try (Consumer<byte[], byte[]> consumer = reader.consumer(config)) {
            consumer.assign(List.of(new TopicPartition(arguments[1], 0)));
            for (ConsumerRecord<byte[], byte[]> record : take(consumer, Integer.parseInt(arguments[4]))) {
                System.out.println(new String(record.value(), UTF_8));
            }
            consumer.metrics().forEach((name, metric) -> {
                if (name.name().equals("preferred-read-replica")) {
                    System.out.println("from " + metric.metricValue());
                }
            });
        }
    }
}
