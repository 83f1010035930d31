import static java.nio.charset.StandardCharsets.UTF_8;

import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What scenarios share: clients with short waits, topics, and waiting for what comes in its own time. */
abstract class Scenarios {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    static final Duration POLL = Duration.ofMillis(200);

    String bootstrap;
    /** A name that nobody else uses. */
    String name;
    /** The group.protocol of consumers. */
    String protocol = "classic";

    /** Arguments: the name of a scenario, the broker, a name that nobody else uses, and a protocol of groups. */
    static void run(Scenarios scenarios, String[] arguments) throws Throwable {
        scenarios.bootstrap = arguments[1];
        scenarios.name = arguments[2];
        if (arguments.length > 3) {
            scenarios.protocol = arguments[3];
        }
        try {
            scenarios.getClass().getDeclaredMethod(arguments[0]).invoke(scenarios);
        } catch (InvocationTargetException wrapped) {
            throw wrapped.getCause();
        }
        System.out.println("passed");
    }

    void create(String topic, int partitions) throws Exception {
        create(new NewTopic(topic, Optional.of(partitions), Optional.empty()), partitions);
    }

    /** A topic of one partition, which the broker 1 leads. */
    void createAtBroker1(String topic) throws Exception {
        create(new NewTopic(topic, Map.of(0, List.of(1))), 1);
    }

    private void create(NewTopic topic, int partitions) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(topic)).all().get();
            awaitPartitions(admin, topic.name(), partitions);
        }
    }

    static void awaitPartitions(Admin admin, String topic, int count) {
        eventually(() -> {
            try {
                var partitions = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
                return partitions.size() == count && partitions.stream().allMatch(it -> it.leader() != null && it.leader().id() >= 0);
            } catch (ExecutionException | InterruptedException notYet) {
                return false;
            }
        });
    }

    /** Writes numbered records, with the timestamps 1000, 1001, ... to each partition. */
    void fill(String topic, int partitions, int each) {
        try (Producer<byte[], byte[]> producer = producer(Map.of())) {
            for (int number = 0; number < partitions * each; number++) {
                producer.send(new ProducerRecord<>(topic, number % partitions, 1_000L + number / partitions, null, bytes("" + number)));
            }
        }
    }

    Producer<byte[], byte[]> producer(Map<String, Object> config) {
        return new KafkaProducer<>(properties(config), new ByteArraySerializer(), new ByteArraySerializer());
    }

    Consumer<byte[], byte[]> consumer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", false,
            "fetch.max.wait.ms", 100, "heartbeat.interval.ms", 200, "retry.backoff.ms", 50, "group.protocol", protocol));
        all.putAll(config);
        if (all.get("group.protocol").equals("consumer")) {
            all.keySet().removeAll(Set.of("heartbeat.interval.ms", "session.timeout.ms", "partition.assignment.strategy"));
        }
        return new KafkaConsumer<>(properties(all), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    Consumer<byte[], byte[]> reader(int... partitions) {
        Consumer<byte[], byte[]> consumer = consumer(Map.of());
        consumer.assign(IntStream.of(partitions).mapToObj(number -> new TopicPartition(name, number)).toList());
        return consumer;
    }

    Admin admin() {
        return Admin.create(properties(Map.of()));
    }

    Properties properties(Map<String, Object> config) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.putAll(config);
        return properties;
    }

    static Map<String, Object> with(Map<String, Object> config, String key, Object value) {
        Map<String, Object> all = new HashMap<>(config);
        all.put(key, value);
        return all;
    }

    static boolean polled(Consumer<byte[], byte[]> consumer) {
        consumer.poll(POLL);
        return true;
    }

    static boolean pollInto(Map<String, Integer> seen, Consumer<byte[], byte[]> consumer) {
        consumer.poll(POLL).forEach(record -> seen.merge(record.partition() + "@" + record.offset(), 1, Integer::sum));
        return true;
    }

    static List<ConsumerRecord<byte[], byte[]>> take(Consumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        eventually(() -> {
            consumer.poll(POLL).forEach(records::add);
            return records.size() >= count;
        });
        same(records.size(), count);
        return records;
    }

    static void eventually(BooleanSupplier condition) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + PATIENCE);
            }
        }
    }

    interface Action {
        void run() throws Exception;
    }

    static void fails(Class<? extends Exception> expected, Action action) {
        try {
            action.run();
        } catch (ExecutionException wrapped) {
            same(wrapped.getCause().getClass(), expected);
            return;
        } catch (Exception direct) {
            same(direct.getClass(), expected);
            return;
        }
        throw new AssertionError("no " + expected.getSimpleName());
    }

    static <T> T value(Future<T> future) {
        try {
            return future.get();
        } catch (InterruptedException | ExecutionException error) {
            throw new AssertionError(error);
        }
    }

    static void same(Object got, Object expected) {
        if (got == null ? expected != null : !got.equals(expected)) {
            throw new AssertionError("got " + got + ", expected " + expected);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }
}
