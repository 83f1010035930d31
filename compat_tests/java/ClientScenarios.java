import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What Kafka's own Java clients do with a broker. Arguments: the name of a scenario, the broker, a name that nobody else uses. */
public final class ClientScenarios {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration POLL = Duration.ofMillis(200);

    private final String bootstrap;
    private final String name;

    private ClientScenarios(String bootstrap, String name) {
        this.bootstrap = bootstrap;
        this.name = name;
    }

    public static void main(String[] arguments) throws Throwable {
        ClientScenarios scenarios = new ClientScenarios(arguments[1], arguments[2]);
        try {
            ClientScenarios.class.getDeclaredMethod(arguments[0]).invoke(scenarios);
        } catch (java.lang.reflect.InvocationTargetException wrapped) {
            throw wrapped.getCause();
        }
        System.out.println("passed");
    }

    void everyCodecAndAcknowledgement() throws Exception {
        create(name, 1);
        int sent = 0;
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (String acks : List.of("0", "1", "all")) {
                Map<String, Object> config = new HashMap<>(Map.of("compression.type", codec, "acks", acks, "linger.ms", 5));
                config.put("enable.idempotence", acks.equals("all"));
                try (Producer<byte[], byte[]> producer = producer(config)) {
                    for (int number = 0; number < 20; number++, sent++) {
                        byte[] key = number % 3 == 0 ? null : bytes("key " + number);
                        byte[] value = number % 5 == 0 && key != null ? null : bytes("value " + sent + " ".repeat(50));
                        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(name, 0, 1_000L + sent, key, value);
                        record.headers().add(new RecordHeader("same", bytes("1"))).add(new RecordHeader("same", null));
                        producer.send(record);
                    }
                }
            }
        }
        try (Consumer<byte[], byte[]> consumer = reader(0)) {
            List<ConsumerRecord<byte[], byte[]>> records = take(consumer, sent);
            for (int number = 0; number < sent; number++) {
                ConsumerRecord<byte[], byte[]> record = records.get(number);
                same(record.offset(), (long) number);
                same(record.timestamp(), 1_000L + number);
                same(record.timestampType(), TimestampType.CREATE_TIME);
                int inBatch = number % 20;
                same(record.key() == null, inBatch % 3 == 0);
                same(record.value() == null, inBatch % 5 == 0 && record.key() != null);
                same(record.headers().toArray().length, 2);
                same(record.headers().lastHeader("same").value(), null);
            }
        }
    }

    void idempotenceByDefault() throws Exception {
        create(name, 3);
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = producer(Map.of("batch.size", 1_000))) {
            for (int number = 0; number < 3_000; number++) {
                answers.add(producer.send(new ProducerRecord<>(name, number % 3, null, bytes("%06d".formatted(number)))));
            }
        }
        for (int number = 0; number < 3_000; number++) {
            same(answers.get(number).get().offset(), (long) number / 3);
        }
        try (Consumer<byte[], byte[]> consumer = reader(0, 1, 2)) {
            for (ConsumerRecord<byte[], byte[]> record : take(consumer, 3_000)) {
                same(new String(record.value(), UTF_8), "%06d".formatted(record.offset() * 3 + record.partition()));
            }
        }
    }

    void tooLargeRecords() throws Exception {
        create(name, 1);
        try (Producer<byte[], byte[]> producer = producer(Map.of("max.request.size", 10_000_000))) {
            producer.send(new ProducerRecord<>(name, new byte[1_000_000])).get();
            fails(RecordTooLargeException.class, () -> producer.send(new ProducerRecord<>(name, new byte[1_100_000])).get());
            producer.send(new ProducerRecord<>(name, new byte[10])).get();
        }
    }

    void invalidNames() throws Exception {
        try (Producer<byte[], byte[]> producer = producer(Map.of("max.block.ms", 10_000)); Admin admin = admin()) {
            fails(InvalidTopicException.class, () -> producer.send(new ProducerRecord<>("not/valid", new byte[1])).get());
            fails(InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("no spaces", 1, (short) 1))).all().get());
            fails(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(name)).all().get());
        }
    }

    void seeksByOffsetAndTime() throws Exception {
        create(name, 2);
        try (Producer<byte[], byte[]> producer = producer(Map.of("linger.ms", 50))) {
            for (long time : new long[] {500, 100, 700, 300}) {
                producer.send(new ProducerRecord<>(name, 0, time, null, bytes("value")));
            }
        }
        TopicPartition partition = new TopicPartition(name, 0);
        TopicPartition empty = new TopicPartition(name, 1);
        try (Consumer<byte[], byte[]> consumer = reader(0)) {
            consumer.seek(partition, 2);
            same(take(consumer, 2).get(0).offset(), 2L);
            consumer.seekToBeginning(List.of(partition));
            same(take(consumer, 4).get(0).offset(), 0L);
            consumer.seekToEnd(List.of(partition));
            same(consumer.position(partition), 4L);
            same(consumer.beginningOffsets(List.of(partition, empty)), Map.of(partition, 0L, empty, 0L));
            same(consumer.endOffsets(List.of(partition, empty)), Map.of(partition, 4L, empty, 0L));
            same(consumer.offsetsForTimes(Map.of(partition, 501L)).get(partition).offset(), 2L);
            same(consumer.offsetsForTimes(Map.of(partition, 501L)).get(partition).timestamp(), 700L);
            same(consumer.offsetsForTimes(Map.of(partition, 701L)).get(partition), null);
            same(consumer.offsetsForTimes(Map.of(empty, 0L)).get(empty), null);
        }
        try (Consumer<byte[], byte[]> consumer = consumer(Map.of("auto.offset.reset", "none"))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 1_000);
            fails(OffsetOutOfRangeException.class, () -> eventually(() -> !consumer.poll(POLL).isEmpty()));
        }
    }

    void sessionsOverManyPolls() throws Exception {
        create(name, 20);
        try (Producer<byte[], byte[]> producer = producer(Map.of());
                Consumer<byte[], byte[]> consumer = reader(IntStream.range(0, 20).toArray())) {
            for (int turn = 0; turn < 60; turn++) {
                int partition = turn * 7 % 20;
                producer.send(new ProducerRecord<>(name, partition, null, bytes("turn " + turn))).get();
                ConsumerRecord<byte[], byte[]> record = take(consumer, 1).get(0);
                same(record.partition(), partition);
                same(new String(record.value(), UTF_8), "turn " + turn);
                if (turn == 30) {
                    consumer.pause(List.of(new TopicPartition(name, 1)));
                    consumer.poll(Duration.ofMillis(1));
                    consumer.resume(List.of(new TopicPartition(name, 1)));
                }
            }
        }
    }

    void cooperativeGroup() throws Exception {
        create(name, 6);
        fill(name, 6, 10);
        Map<String, Object> config = Map.of("group.id", name, "max.poll.records", 7,
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        Set<TopicPartition> lost = new TreeSet<>((one, other) -> one.partition() - other.partition());
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                lost.addAll(partitions);
            }

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}
        };
        Map<String, Integer> seen = new TreeMap<>();
        try (Consumer<byte[], byte[]> first = consumer(config)) {
            first.subscribe(List.of(name), listener);
            eventually(() -> pollInto(seen, first) && first.assignment().size() == 6);
            try (Consumer<byte[], byte[]> second = consumer(config)) {
                second.subscribe(List.of(name));
                eventually(() -> pollInto(seen, first) & pollInto(seen, second)
                    && first.assignment().size() == 3 && second.assignment().size() == 3);
                same(lost, second.assignment().stream().collect(Collectors.toCollection(() -> new TreeSet<>(
                    (one, other) -> one.partition() - other.partition()))));
                eventually(() -> pollInto(seen, first) & pollInto(seen, second) && seen.size() == 60);
                first.commitSync();
                second.commitSync();
            }
            eventually(() -> pollInto(seen, first) && first.assignment().size() == 6);
        }
    }

    void commitsAndTheirMetadata() throws Exception {
        create(name, 2);
        fill(name, 2, 5);
        TopicPartition partition = new TopicPartition(name, 0);
        try (Consumer<byte[], byte[]> consumer = consumer(Map.of("group.id", name))) {
            consumer.subscribe(List.of(name));
            take(consumer, 10);
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(3, Optional.of(0), "note")));
            boolean[] answered = new boolean[1];
            consumer.commitAsync(Map.of(new TopicPartition(name, 1), new OffsetAndMetadata(4)), (offsets, error) -> {
                same(error, null);
                answered[0] = true;
            });
            eventually(() -> consumer.poll(POLL).isEmpty() && answered[0]);
            Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(Set.of(partition));
            same(committed.get(partition).offset(), 3L);
            same(committed.get(partition).metadata(), "note");
            same(committed.get(partition).leaderEpoch(), Optional.of(0));
        }
        try (Consumer<byte[], byte[]> consumer = consumer(Map.of("group.id", name))) {
            consumer.subscribe(List.of(name));
            same(take(consumer, 3).stream().map(record -> record.partition() + "@" + record.offset()).sorted().toList(),
                List.of("0@3", "0@4", "1@4"));
        }
    }

    void staticMembers() throws Exception {
        create(name, 4);
        Map<String, Object> config = Map.of("group.id", name, "session.timeout.ms", 30_000);
        try (Consumer<byte[], byte[]> one = consumer(with(config, "group.instance.id", "one")); Admin admin = admin()) {
            one.subscribe(List.of(name));
            Set<TopicPartition> before;
            try (Consumer<byte[], byte[]> two = consumer(with(config, "group.instance.id", "two"))) {
                two.subscribe(List.of(name));
                eventually(() -> polled(one) & polled(two) && one.assignment().size() == 2 && two.assignment().size() == 2);
                before = two.assignment();
            }
            int generation = one.groupMetadata().generationId();
            try (Consumer<byte[], byte[]> two = consumer(with(config, "group.instance.id", "two"))) {
                two.subscribe(List.of(name));
                eventually(() -> polled(one) & polled(two) && two.assignment().equals(before));
                same(one.groupMetadata().generationId(), generation);
            }
            admin.removeMembersFromConsumerGroup(name,
                new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("two")))).all().get();
            eventually(() -> polled(one) && one.assignment().size() == 4);
        }
    }

    void topicsThroughTheAdminClient() throws Exception {
        try (Admin admin = admin()) {
            var created = admin.createTopics(List.of(new NewTopic(name, 3, (short) 1).configs(Map.of("retention.ms", "1000000"))));
            same(created.numPartitions(name).get(), 3);
            same(created.config(name).get().get("retention.ms").value(), "1000000");
            Uuid id = created.topicId(name).get();
            awaitPartitions(admin, name, 3);
            fails(TopicExistsException.class, () -> admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get());
            TopicDescription described = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
            same(described.topicId(), id);
            same(described.partitions().get(2).isr().size(), 1);
            same(admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id).name(), name);
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(5))).all().get();
            awaitPartitions(admin, name, 5);
            same(admin.listTopics().listings().get().stream().filter(it -> it.name().equals(name)).findFirst().orElseThrow().topicId(), id);
            admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
            eventually(() -> !value(admin.listTopics().names()).contains(name));
        }
    }

    void configsThroughTheAdminClient() throws Exception {
        create(name, 1);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        try (Admin admin = admin()) {
            admin.incrementalAlterConfigs(Map.of(topic, List.of(
                new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND),
                new AlterConfigOp(new ConfigEntry("retention.ms", "5000000"), AlterConfigOp.OpType.SET)))).all().get();
            eventually(() -> config(admin, topic, "retention.ms").value().equals("5000000"));
            same(config(admin, topic, "cleanup.policy").value(), "delete,compact");
            same(config(admin, topic, "cleanup.policy").source(), ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG);
            same(config(admin, topic, "cleanup.policy").type(), ConfigEntry.ConfigType.LIST);
            same(config(admin, topic, "retention.ms").type(), ConfigEntry.ConfigType.LONG);
            same(config(admin, topic, "segment.bytes").source(), ConfigEntry.ConfigSource.DEFAULT_CONFIG);
            same(config(admin, topic, "segment.bytes").isSensitive(), false);
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, admin.describeCluster().controller().get().idString());
            same(config(admin, broker, "log.segment.bytes").value(), "1073741824");
            same(config(admin, broker, "node.id").isReadOnly(), true);
        }
    }

    void groupsThroughTheAdminClient() throws Exception {
        create(name, 2);
        fill(name, 2, 5);
        TopicPartition first = new TopicPartition(name, 0);
        TopicPartition second = new TopicPartition(name, 1);
        try (Admin admin = admin()) {
            fails(GroupIdNotFoundException.class, () -> admin.describeConsumerGroups(List.of(name)).all().get());
            try (Consumer<byte[], byte[]> consumer = consumer(Map.of("group.id", name, "client.id", "the-client"))) {
                consumer.subscribe(List.of(name));
                take(consumer, 10);
                consumer.commitSync();
                ConsumerGroupDescription group = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
                same(group.groupState(), GroupState.STABLE);
                same(group.members().iterator().next().clientId(), "the-client");
                same(group.members().iterator().next().assignment().topicPartitions(), Set.of(first, second));
            }
            same(admin.describeConsumerGroups(List.of(name)).all().get().get(name).groupState(), GroupState.EMPTY);
            same(admin.listGroups().all().get().stream().anyMatch(it -> it.groupId().equals(name)), true);
            same(offsets(admin), Map.of(first, 5L, second, 5L));
            admin.alterConsumerGroupOffsets(name, Map.of(first, new OffsetAndMetadata(2))).all().get();
            admin.deleteConsumerGroupOffsets(name, Set.of(second)).all().get();
            same(offsets(admin), Map.of(first, 2L));
            admin.deleteConsumerGroups(List.of(name)).all().get();
            fails(GroupIdNotFoundException.class, () -> admin.deleteConsumerGroups(List.of(name)).all().get());
        }
    }

    void recordsDeletedAndOffsetsListed() throws Exception {
        create(name, 1);
        fill(name, 1, 10);
        TopicPartition partition = new TopicPartition(name, 0);
        try (Admin admin = admin(); Consumer<byte[], byte[]> consumer = reader(0)) {
            same(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(partition).get().lowWatermark(), 4L);
            Map<OffsetSpec, Long> expected = Map.of(OffsetSpec.earliest(), 4L, OffsetSpec.latest(), 10L,
                OffsetSpec.maxTimestamp(), 9L, OffsetSpec.forTimestamp(1_005), 5L, OffsetSpec.earliestLocal(), 4L, OffsetSpec.latestTiered(), -1L);
            for (Map.Entry<OffsetSpec, Long> question : expected.entrySet()) {
                ListOffsetsResultInfo answer = admin.listOffsets(Map.of(partition, question.getKey())).partitionResult(partition).get();
                same(answer.offset(), question.getValue());
            }
            same(take(consumer, 6).get(0).offset(), 4L);
        }
    }

    void topicMadeAgainUnderAConsumer() throws Exception {
        create(name, 1);
        fill(name, 1, 5);
        try (Admin admin = admin(); Consumer<byte[], byte[]> consumer = consumer(Map.of("metadata.max.age.ms", 300, "allow.auto.create.topics", false))) {
            consumer.assign(List.of(new TopicPartition(name, 0)));
            take(consumer, 5);
            admin.deleteTopics(List.of(name)).all().get();
            eventually(() -> !value(admin.listTopics().names()).contains(name));
            create(name, 1);
            fill(name, 1, 3);
            List<Long> offsets = new ArrayList<>();
            eventually(() -> {
                consumer.poll(POLL).forEach(record -> offsets.add(record.offset()));
                return offsets.size() >= 3;
            });
            same(offsets, List.of(0L, 1L, 2L));
        }
    }

    private Map<TopicPartition, Long> offsets(Admin admin) throws Exception {
        Map<TopicPartition, Long> found = new HashMap<>();
        admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().forEach((partition, offset) -> found.put(partition, offset.offset()));
        return found;
    }

    private static ConfigEntry config(Admin admin, ConfigResource resource, String key) {
        return value(admin.describeConfigs(List.of(resource)).values().get(resource)).get(key);
    }

    private void create(String topic, int partitions) throws Exception {
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
            awaitPartitions(admin, topic, partitions);
        }
    }

    private static void awaitPartitions(Admin admin, String topic, int count) {
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
    private void fill(String topic, int partitions, int each) {
        try (Producer<byte[], byte[]> producer = producer(Map.of())) {
            for (int number = 0; number < partitions * each; number++) {
                producer.send(new ProducerRecord<>(topic, number % partitions, 1_000L + number / partitions, null, bytes("" + number)));
            }
        }
    }

    private Producer<byte[], byte[]> producer(Map<String, Object> config) {
        return new KafkaProducer<>(properties(config), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private Consumer<byte[], byte[]> consumer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of("auto.offset.reset", "earliest", "enable.auto.commit", false,
            "fetch.max.wait.ms", 100, "heartbeat.interval.ms", 200, "retry.backoff.ms", 50));
        all.putAll(config);
        return new KafkaConsumer<>(properties(all), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Consumer<byte[], byte[]> reader(int... partitions) {
        Consumer<byte[], byte[]> consumer = consumer(Map.of());
        consumer.assign(IntStream.of(partitions).mapToObj(number -> new TopicPartition(name, number)).toList());
        return consumer;
    }

    private Admin admin() {
        return Admin.create(properties(Map.of()));
    }

    private Properties properties(Map<String, Object> config) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.putAll(config);
        return properties;
    }

    private static Map<String, Object> with(Map<String, Object> config, String key, Object value) {
        Map<String, Object> all = new HashMap<>(config);
        all.put(key, value);
        return all;
    }

    private static boolean polled(Consumer<byte[], byte[]> consumer) {
        consumer.poll(POLL);
        return true;
    }

    private static boolean pollInto(Map<String, Integer> seen, Consumer<byte[], byte[]> consumer) {
        consumer.poll(POLL).forEach(record -> seen.merge(record.partition() + "@" + record.offset(), 1, Integer::sum));
        return true;
    }

    private static List<ConsumerRecord<byte[], byte[]>> take(Consumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        eventually(() -> {
            consumer.poll(POLL).forEach(records::add);
            return records.size() >= count;
        });
        same(records.size(), count);
        return records;
    }

    private static void eventually(BooleanSupplier condition) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("not within " + PATIENCE);
            }
        }
    }

    private interface Action {
        void run() throws Exception;
    }

    private static void fails(Class<? extends Exception> expected, Action action) {
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

    private static <T> T value(Future<T> future) {
        try {
            return future.get();
        } catch (InterruptedException | ExecutionException error) {
            throw new AssertionError(error);
        }
    }

    private static void same(Object got, Object expected) {
        if (got == null ? expected != null : !got.equals(expected)) {
            throw new AssertionError("got " + got + ", expected " + expected);
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }
}
