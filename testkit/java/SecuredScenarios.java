import java.io.FileInputStream;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;

/**
 * What Kafka's Java clients do at a secured listener. Arguments: what to do, a file with the properties of the clients, a topic with
 * one partition that is there, and a number for those that need one.
 */
public final class SecuredScenarios extends Scenarios {
    private final Properties secured = new Properties();

    public static void main(String[] arguments) throws Exception {
        SecuredScenarios scenarios = new SecuredScenarios();
        try (InputStream file = new FileInputStream(arguments[1])) {
            scenarios.secured.load(file);
        }
        String tokens = scenarios.secured.getProperty("sasl.oauthbearer.token.endpoint.url");
        if (tokens != null) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", tokens);
        }
        scenarios.name = arguments[2];
        switch (arguments[0]) {
            case "roundTrip" -> scenarios.roundTrip();
            case "refusal" -> scenarios.refusal();
            case "staysFor" -> scenarios.staysFor(Long.parseLong(arguments[3]));
            default -> throw new IllegalArgumentException(Arrays.toString(arguments));
        }
    }

    @Override
    Properties properties(Map<String, Object> config) {
        Properties all = new Properties();
        all.putAll(secured);
        all.putAll(config);
        return all;
    }

    private void roundTrip() throws Exception {
        try (Producer<byte[], byte[]> producer = producer(Map.of()); Consumer<byte[], byte[]> consumer = reader(0)) {
            producer.send(new ProducerRecord<>(name, 0, null, bytes("from Java"))).get();
            List<String> values = new ArrayList<>();
            take(consumer, 1).forEach(record -> values.add(new String(record.value())));
            same(values, List.of("from Java"));
        }
        System.out.println("passed");
    }

    /** Prints the error with which a producer fails, its class and its message; "none" if it succeeds. */
    private void refusal() throws InterruptedException {
        try (Producer<byte[], byte[]> producer = producer(Map.of("max.block.ms", 10_000, "request.timeout.ms", 5_000, "delivery.timeout.ms", 6_000))) {
            producer.send(new ProducerRecord<>(name, 0, null, bytes("from Java"))).get();
            System.out.println("none");
        } catch (ExecutionException wrapped) {
            System.out.println(wrapped.getCause().getClass().getSimpleName() + ": " + wrapped.getCause().getMessage());
        }
    }

    /** Produces and consumes for so long, and prints how many records came, in order, and how often each client authenticated again. */
    private void staysFor(long ms) throws Exception {
        List<Long> offsets = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = producer(Map.of()); Consumer<byte[], byte[]> consumer = consumer(Map.of())) {
            consumer.assign(List.of(new TopicPartition(name, 0)));
            long end = System.nanoTime() + ms * 1_000_000;
            long sent = 0;
            while (System.nanoTime() < end) {
                same(producer.send(new ProducerRecord<>(name, 0, null, bytes("" + sent))).get().offset(), sent++);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    offsets.add(record.offset());
                }
            }
            for (int number = 0; number < offsets.size(); number++) {
                same(offsets.get(number), (long) number);
            }
            System.out.println(offsets.size() + " " + reauthentications(producer.metrics().values()) + " " + reauthentications(consumer.metrics().values()));
        }
    }

    private static long reauthentications(Iterable<? extends Metric> metrics) {
        double found = 0;
        for (Metric metric : metrics) {
            if (metric.metricName().name().equals("successful-reauthentication-total") && !metric.metricName().tags().containsKey("node-id")) {
                found += (Double) metric.metricValue();
            }
        }
        return (long) found;
    }
}
