import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.ShareConsumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidRecordStateException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What Kafka's own Java consumer does in share groups (KIP-932). The group has the scenario's name. */
public final class ShareScenarios extends Scenarios {
    private static final int SHORTEST_LOCK_MS = 1_000;
    private static final Duration SHORT = Duration.ofMillis(100);

    private static final AcknowledgeType ACCEPT = AcknowledgeType.ACCEPT;
    private static final AcknowledgeType RELEASE = AcknowledgeType.RELEASE;
    private static final AcknowledgeType REJECT = AcknowledgeType.REJECT;
    private static final AcknowledgeType RENEW = AcknowledgeType.RENEW;

    public static void main(String[] arguments) throws Throwable {
        run(new ShareScenarios(), arguments);
    }

    void acknowledgedOneByOne() throws Exception {
        begin(1, Map.of());
        fill(name, 1, 4);
        Map<Integer, Set<Long>> acknowledged = new HashMap<>();
        try (ShareConsumer<byte[], byte[]> consumer = explicit()) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                same(error, null);
                offsets.forEach((partition, which) -> acknowledged.put(partition.partition(), Set.copyOf(which)));
            });
            List<ConsumerRecord<byte[], byte[]>> records = get(consumer, 4, null);
            same(deliveries(records), "0x1 1x1 2x1 3x1");
            fails(IllegalStateException.class, () -> consumer.poll(SHORT));
            acknowledge(consumer, records, ACCEPT, RELEASE, REJECT, ACCEPT);
            same(outcome(consumer), Optional.empty());
            same(acknowledged, Map.of(0, Set.of(0L, 1L, 2L, 3L)));
            same(deliveries(get(consumer, 1, ACCEPT)), "1x2");
            consumer.commitAsync();
            nothingComes(consumer);
            same(acknowledged, Map.of(0, Set.of(1L)));
        }
        untouched(Map.of());
    }

    void acknowledgedByThemselves() throws Exception {
        begin(1, Map.of());
        fill(name, 1, 3);
        try (ShareConsumer<byte[], byte[]> consumer = consumer("implicit", Map.of())) {
            same(deliveries(get(consumer, 3, null)), "0x1 1x1 2x1");
            same(outcome(consumer), Optional.empty());
            fill(name, 1, 3);
            same(deliveries(get(consumer, 3, null)), "3x1 4x1 5x1");
            nothingComes(consumer);
            fill(name, 1, 3);
            get(consumer, 3, null);
        } // which gives back what the last poll got
        try (ShareConsumer<byte[], byte[]> consumer = explicit()) {
            same(deliveries(get(consumer, 3, ACCEPT)), "6x2 7x2 8x2");
        }
    }

    void givenBackOnClosing() throws Exception {
        begin(1, Map.of());
        fill(name, 1, 3);
        try (ShareConsumer<byte[], byte[]> other = explicit()) {
            try (ShareConsumer<byte[], byte[]> consumer = explicit()) {
                consumer.acknowledge(get(consumer, 3, null).get(1));
                nothingComes(other);
            }
            same(deliveries(get(other, 2, ACCEPT)), "0x2 2x2");
        }
    }

    void locksThatEnd() throws Exception {
        begin(1, Map.of("share.record.lock.duration.ms", "" + SHORTEST_LOCK_MS));
        fill(name, 1, 2);
        try (ShareConsumer<byte[], byte[]> slow = explicit(); ShareConsumer<byte[], byte[]> other = explicit()) {
            List<ConsumerRecord<byte[], byte[]>> late = get(slow, 2, null);
            same(slow.acquisitionLockTimeoutMs(), Optional.of(SHORTEST_LOCK_MS));
            same(deliveries(get(other, 2, ACCEPT)), "0x2 1x2");
            acknowledge(slow, late, ACCEPT, ACCEPT);
            same(outcome(slow).map(Object::getClass), Optional.of(InvalidRecordStateException.class));
            same(outcome(other), Optional.empty());
        }
    }

    /** KIP-1222: for twice the time of a lock. */
    void renewals() throws Exception {
        begin(1, Map.of("share.record.lock.duration.ms", "" + SHORTEST_LOCK_MS));
        fill(name, 1, 2);
        try (ShareConsumer<byte[], byte[]> slow = explicit(); ShareConsumer<byte[], byte[]> other = explicit()) {
            ConsumerRecord<byte[], byte[]> kept = null;
            long end = System.nanoTime() + Duration.ofMillis(2L * SHORTEST_LOCK_MS).toNanos();
            acknowledge(slow, get(slow, 2, null), RENEW, ACCEPT);
            same(outcome(slow), Optional.empty());
            while (System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : slow.poll(SHORT)) {
                    same(record.offset(), 0L);
                    same(record.deliveryCount(), Optional.of((short) 1));
                    slow.acknowledge(record, RENEW);
                    kept = record;
                }
                same(outcome(slow), Optional.empty());
                same(other.poll(SHORT).count(), 0);
            }
            same(deliveries(List.of(kept)), "0x1");
            slow.poll(SHORT).forEach(record -> slow.acknowledge(record, RELEASE));
            same(outcome(slow), Optional.empty());
            same(deliveries(get(other, 1, ACCEPT)), "0x2");
        }
    }

    /** KIP-1206. A batch of 20 records, and at most 8 of them wanted. */
    void acquireModes() throws Exception {
        begin(1, Map.of());
        fill(name, 1, 20);
        for (String mode : List.of("batch_optimized", "record_limit")) {
            Map<String, Object> config = Map.of("share.acquire.mode", mode, "max.poll.records", 8);
            try (ShareConsumer<byte[], byte[]> consumer = consumer("explicit", config)) {
                List<Integer> polls = new ArrayList<>();
                eventually(() -> {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
                    if (!records.isEmpty()) {
                        polls.add(records.count());
                        records.forEach(record -> consumer.acknowledge(record, mode.equals("record_limit") ? ACCEPT : RELEASE));
                    }
                    return mode.equals("record_limit") ? polls.stream().mapToInt(it -> it).sum() == 20 : !polls.isEmpty();
                });
                same(polls, mode.equals("record_limit") ? List.of(8, 8, 4) : List.of(20));
            }
        }
        untouched(Map.of());
    }

    void deliveryLimit() throws Exception {
        begin(1, Map.of("share.delivery.count.limit", "2"));
        fill(name, 1, 2);
        try (ShareConsumer<byte[], byte[]> consumer = explicit()) {
            same(deliveries(get(consumer, 2, RELEASE)), "0x1 1x1");
            same(deliveries(get(consumer, 2, RELEASE)), "0x2 1x2");
            nothingComes(consumer);
            fill(name, 1, 1);
            same(deliveries(get(consumer, 1, ACCEPT)), "2x1");
        }
    }

    void committedRecordsOnly() throws Exception {
        begin(1, Map.of("share.isolation.level", "read_committed"));
        try (Producer<byte[], byte[]> producer = producer(Map.of("transactional.id", name));
             ShareConsumer<byte[], byte[]> consumer = explicit()) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, bytes("aborted")));
            producer.flush();
            producer.abortTransaction();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, bytes("committed")));
            producer.commitTransaction();
            same(deliveries(get(consumer, 1, ACCEPT)), "2x1");
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(name, bytes("open")));
            producer.flush();
            nothingComes(consumer);
            producer.commitTransaction();
            same(deliveries(get(consumer, 1, ACCEPT)), "4x1");
        }
    }

    void tenConsumers() throws Exception {
        int partitions = 3, each = 400, members = 10;
        begin(partitions, Map.of());
        AtomicIntegerArray accepted = new AtomicIntegerArray(partitions * each);
        AtomicIntegerArray of = new AtomicIntegerArray(members);
        fill(name, partitions, each / 2);
        parallel(members, number -> {
            try (ShareConsumer<byte[], byte[]> consumer = consumer("explicit", Map.of("share.acquire.mode", "record_limit", "max.poll.records", 20))) {
                eventually(() -> polledOnce(consumer, accepted, of, number) && sum(of) >= partitions * each / 2);
                if (number == 0) {
                    fill(name, partitions, each / 2);
                }
                eventually(() -> polledOnce(consumer, accepted, of, number) && sum(of) >= partitions * each);
            }
            return null;
        });
        same(sum(of), partitions * each);
        for (int index = 0; index < accepted.length(); index++) {
            same(index + ": " + accepted.get(index), index + ": 1");
        }
        same(IntStream.range(0, members).filter(it -> of.get(it) > 0).count() > members / 2, true);
        untouched(Map.of());
    }

    /**
     * The caller has created the topic and the group, and restarts the broker as soon as some records are accepted.
     * An acknowledgement whose answer is lost in the restart may count: its record comes again, or it does not.
     */
    void restartInMidStream() throws Exception {
        int partitions = 2, each = 300, members = 3;
        Set<String> acknowledged = ConcurrentHashMap.newKeySet();
        parallel(members + 1, number -> {
            if (number == members) {
                write(partitions, each);
                return null;
            }
            try (ShareConsumer<byte[], byte[]> consumer = explicit(); Admin admin = admin()) {
                consumer.setAcknowledgementCommitCallback((offsets, error) ->
                    offsets.forEach((partition, which) -> which.forEach(it -> acknowledged.add(partition.partition() + "@" + it))));
                eventually(() -> {
                    consumer.poll(SHORT).forEach(consumer::acknowledge);
                    consumer.commitSync();
                    return acknowledged.size() == partitions * each && lag(admin, partitions) == 0;
                });
            }
            return null;
        });
        untouched(Map.of());
    }

    private long lag(Admin admin, int partitions) {
        var offsets = value(admin.listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(name));
        return IntStream.range(0, partitions).mapToLong(it -> offsets.get(new TopicPartition(name, it)).lag().orElseThrow()).sum();
    }

    /** Slowly, one after the other, each once. */
    private void write(int partitions, int each) throws Exception {
        try (Producer<byte[], byte[]> producer = producer(Map.of("linger.ms", 0))) {
            for (int number = 0; number < partitions * each; number++) {
                producer.send(new ProducerRecord<>(name, number % partitions, null, bytes("" + number))).get();
                Thread.sleep(2);
            }
        }
    }

    private interface ByNumber {
        Void run(int number) throws Exception;
    }

    private static void parallel(int threads, ByNumber action) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        try {
            List<Callable<Void>> all = IntStream.range(0, threads).mapToObj(number -> (Callable<Void>) () -> action.run(number)).toList();
            for (Future<Void> one : pool.invokeAll(all)) {
                value(one);
            }
        } finally {
            pool.shutdown();
        }
    }

    private boolean polledOnce(ShareConsumer<byte[], byte[]> consumer, AtomicIntegerArray accepted, AtomicIntegerArray of, int number) {
        int each = accepted.length() / 3;
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(SHORT)) {
            accepted.incrementAndGet(record.partition() * each + (int) record.offset());
            of.incrementAndGet(number);
            consumer.acknowledge(record);
        }
        return true;
    }

    private static int sum(AtomicIntegerArray counts) {
        return IntStream.range(0, counts.length()).map(counts::get).sum();
    }

    /** A topic, and a group that begins at its start. */
    private void begin(int partitions, Map<String, String> config) throws Exception {
        create(name, partitions);
        Map<String, String> all = new TreeMap<>(config);
        all.put("share.auto.offset.reset", "earliest");
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
        try (Admin admin = admin()) {
            List<AlterConfigOp> changes = all.entrySet().stream()
                .map(it -> new AlterConfigOp(new ConfigEntry(it.getKey(), it.getValue()), AlterConfigOp.OpType.SET)).toList();
            admin.incrementalAlterConfigs(Map.of(group, changes)).all().get();
            eventually(() -> {
                var described = value(admin.describeConfigs(List.of(group)).values().get(group));
                return all.entrySet().stream().allMatch(it -> described.get(it.getKey()).value().equals(it.getValue()));
            });
        }
    }

    /** Fails if the group has left anything for a consumer that comes now. */
    private void untouched(Map<String, Object> config) {
        try (ShareConsumer<byte[], byte[]> consumer = consumer("explicit", config)) {
            nothingComes(consumer);
        }
    }

    private ShareConsumer<byte[], byte[]> explicit() {
        return consumer("explicit", Map.of());
    }

    private ShareConsumer<byte[], byte[]> consumer(String mode, Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(Map.of("group.id", name, "share.acknowledgement.mode", mode, "fetch.max.wait.ms", 100,
            "retry.backoff.ms", 50));
        all.putAll(config);
        ShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(properties(all), new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(name));
        return consumer;
    }

    /** Polls until there are so many records, and acknowledges them unless `type` is null. */
    private static List<ConsumerRecord<byte[], byte[]>> get(ShareConsumer<byte[], byte[]> consumer, int count, AcknowledgeType type) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        eventually(() -> {
            consumer.poll(POLL).forEach(record -> {
                records.add(record);
                if (type != null) {
                    consumer.acknowledge(record, type);
                }
            });
            return records.size() >= count;
        });
        same(records.size(), count);
        return records;
    }

    private static void acknowledge(ShareConsumer<byte[], byte[]> consumer, List<ConsumerRecord<byte[], byte[]>> records, AcknowledgeType... types) {
        for (int index = 0; index < types.length; index++) {
            consumer.acknowledge(records.get(index), types[index]);
        }
    }

    /** The error of the only partition's acknowledgements. */
    private static Optional<Exception> outcome(ShareConsumer<byte[], byte[]> consumer) {
        return consumer.commitSync().values().stream().flatMap(Optional::stream).map(it -> (Exception) it).findFirst();
    }

    private static void nothingComes(ShareConsumer<byte[], byte[]> consumer) {
        for (int time = 0; time < 4; time++) {
            same(consumer.poll(SHORT).count(), 0);
        }
    }

    /** Offsets, and how often each was delivered. */
    private static String deliveries(List<ConsumerRecord<byte[], byte[]>> records) {
        return String.join(" ", records.stream().map(it -> it.offset() + "x" + it.deliveryCount().get()).toList());
    }
}
