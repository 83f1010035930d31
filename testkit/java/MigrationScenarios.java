import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/**
 * A group that reads and commits all the time while its members are replaced, one by one, by such of the other protocol, and back.
 * No record is skipped, none comes again after it was committed, and the commits are there in the end.
 */
public final class MigrationScenarios extends Scenarios {
    private final int members;
    private final int partitions;
    private final List<Consumer<byte[], byte[]>> group = new ArrayList<>();
    /** By partition: the next offset that nobody was given yet, and the last one that was committed. */
    private final Map<Integer, Long> next = new HashMap<>();
    private final Map<Integer, Long> committed = new HashMap<>();
    private Producer<byte[], byte[]> producer;
    private long sent;
    private boolean done;

    private MigrationScenarios(int members) {
        this.members = members;
        this.partitions = 2 * members;
    }

    /** Arguments: as of all scenarios, and how many members there are. */
    public static void main(String[] arguments) throws Throwable {
        run(new MigrationScenarios(Integer.parseInt(arguments[4])), arguments);
    }

    void range() throws Exception {
        thereAndBack("org.apache.kafka.clients.consumer.RangeAssignor");
    }

    void cooperativeSticky() throws Exception {
        thereAndBack("org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    }

    private void thereAndBack(String strategy) throws Exception {
        create(name, partitions);
        Map<String, Object> classic = Map.of("partition.assignment.strategy", strategy, "session.timeout.ms", 10_000);
        Map<String, Object> modern = Map.of("group.protocol", "consumer");
        try (Admin admin = admin()) {
            producer = producer(Map.of("linger.ms", 5));
            for (int number = 0; number < members; number++) {
                join(classic);
                settle();
            }
            same(type(admin), GroupType.CLASSIC);
            for (int number = 0; number < members; number++) {
                replaceOne(modern);
                same(type(admin), GroupType.CONSUMER);
            }
            same(upgraded(admin), members);
            for (int number = 0; number < members; number++) {
                same(type(admin), GroupType.CONSUMER);
                replaceOne(classic);
            }
            same(type(admin), GroupType.CLASSIC);
            done = true;
            producer.close();
            eventually(() -> read() && next.values().stream().mapToLong(Long::longValue).sum() == sent);
            Map<TopicPartition, OffsetAndMetadata> found = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
            same(found.values().stream().mapToLong(OffsetAndMetadata::offset).sum(), sent);
        } finally {
            producer.close();
            group.forEach(Consumer::close);
        }
    }

    private void join(Map<String, Object> config) {
        Consumer<byte[], byte[]> consumer = consumer(with(config, "group.id", name));
        consumer.subscribe(List.of(name));
        group.add(consumer);
    }

    private void replaceOne(Map<String, Object> config) {
        join(config);
        settle();
        group.remove(0).close();
        settle();
    }

    /** Until each partition has one owner, nobody has too many, and something was read after that. */
    private void settle() {
        int most = (partitions + group.size() - 1) / group.size();
        eventually(() -> {
            read();
            List<TopicPartition> owned = group.stream().flatMap(it -> it.assignment().stream()).toList();
            return owned.size() == partitions && Set.copyOf(owned).size() == partitions
                && group.stream().allMatch(it -> it.assignment().size() <= most);
        });
        long before = sent;
        eventually(() -> read() && next.values().stream().mapToLong(Long::longValue).sum() >= before);
    }

    /** One turn: some records are sent, and each member reads and commits. */
    private boolean read() {
        for (int number = 0; number < 5 * partitions && !done; number++, sent++) {
            producer.send(new ProducerRecord<>(name, (int) (sent % partitions), null, bytes("" + sent)));
        }
        for (Consumer<byte[], byte[]> consumer : group) {
            var records = consumer.poll(POLL.dividedBy(10));
            records.forEach(record -> {
                long expected = next.getOrDefault(record.partition(), 0L);
                if (record.offset() > expected) {
                    throw new AssertionError("skipped: " + record.partition() + " continues at " + record.offset() + ", not " + expected);
                }
                if (record.offset() < committed.getOrDefault(record.partition(), 0L)) {
                    throw new AssertionError("again: " + record.partition() + "@" + record.offset() + " was committed");
                }
                next.put(record.partition(), Math.max(expected, record.offset() + 1));
            });
            if (!records.isEmpty()) {
                commit(consumer, records.nextOffsets());
            }
        }
        return true;
    }

    private void commit(Consumer<byte[], byte[]> consumer, Map<TopicPartition, OffsetAndMetadata> offsets) {
        try {
            consumer.commitSync(offsets);
        } catch (RebalanceInProgressException | CommitFailedException later) {
            return;  // its generation has passed: it reads them again, or somebody else does
        }
        offsets.forEach((partition, offset) -> committed.put(partition.partition(), offset.offset()));
    }

    private GroupType type(Admin admin) {
        return value(admin.describeConsumerGroups(List.of(name)).describedGroups().get(name)).type();
    }

    private int upgraded(Admin admin) {
        return (int) value(admin.describeConsumerGroups(List.of(name)).describedGroups().get(name)).members().stream()
            .filter(it -> it.upgraded().orElse(false)).count();
    }
}
