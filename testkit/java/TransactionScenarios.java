import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.InvalidTxnStateException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** What Kafka's own Java clients do with transactions: version 2 of them, which adds partitions as it produces. */
public final class TransactionScenarios extends Scenarios {
    public static void main(String[] arguments) throws Throwable {
        run(new TransactionScenarios(), arguments);
    }

    void commitsAndAbortsInTurn() throws Exception {
        create(name, 6);
        List<String> committed = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = transactional(name)) {
            for (int number = 0; number < 30; number++) {
                producer.beginTransaction();
                for (int partition = 0; partition < 6; partition++) {
                    producer.send(record(name, partition, "%d-%02d".formatted(partition, number)));
                }
                producer.flush(); // an abort drops what was not sent yet
                if (number % 3 == 1) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        for (int partition = 0; partition < 6; partition++) {
            for (int number = 0; number < 30; number++) {
                if (number % 3 != 1) {
                    committed.add("%d-%02d".formatted(partition, number));
                }
            }
        }
        same(seen(name, 6), committed);
        same(written(name, 6).size(), 180);
    }

    void emptyTransactions() throws Exception {
        create(name, 1);
        try (Producer<byte[], byte[]> producer = transactional(name)) {
            for (boolean commits : new boolean[] {true, false, false, true}) {
                producer.beginTransaction();
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            same(end(name, 0, IsolationLevel.READ_UNCOMMITTED), 0L);
            producer.beginTransaction();
            producer.send(record(name, 0, "not empty"));
            producer.commitTransaction();
        }
        same(seen(name, 1), List.of("not empty"));
    }

    void openTransactionsHoldBackReadCommitted() throws Exception {
        create(name, 1);
        try (Producer<byte[], byte[]> slow = transactional(name + "-slow"); Producer<byte[], byte[]> quick = transactional(name + "-quick")) {
            slow.beginTransaction();
            slow.send(record(name, 0, "slow")).get();
            quick.beginTransaction();
            quick.send(record(name, 0, "quick")).get();
            quick.commitTransaction();
            eventually(() -> end(name, 0, IsolationLevel.READ_UNCOMMITTED) == 3);
            same(end(name, 0, IsolationLevel.READ_COMMITTED), 0L);
            same(values(name, 1, IsolationLevel.READ_COMMITTED), List.of());
            same(written(name, 1), List.of("slow", "quick"));
            slow.abortTransaction();
            same(seen(name, 1), List.of("quick"));
            same(end(name, 0, IsolationLevel.READ_COMMITTED), 4L);
        }
    }

    void manyIdsAtOnce() throws Exception {
        create(name, 3);
        List<Producer<byte[], byte[]>> producers = new ArrayList<>();
        List<String> committed = new ArrayList<>();
        try {
            for (int number = 0; number < 20; number++) {
                producers.add(transactional(name + "-" + number));
                producers.get(number).beginTransaction();
            }
            for (int turn = 0; turn < 2; turn++) {
                for (int number = 0; number < 20; number++) {
                    producers.get(number).send(record(name, number % 3, "%02d in turn %d".formatted(number, turn))).get();
                }
            }
            for (int number = 19; number >= 0; number--) {
                if (number % 2 == 0) {
                    producers.get(number).commitTransaction();
                    committed.addAll(List.of("%02d in turn 0".formatted(number), "%02d in turn 1".formatted(number)));
                } else {
                    producers.get(number).abortTransaction();
                }
            }
        } finally {
            producers.forEach(Producer::close);
        }
        same(seen(name, 3).stream().sorted().toList(), committed.stream().sorted().toList());
        same(written(name, 3).size(), 40);
    }

    void offsetsInATransaction() throws Exception {
        create(name, 1);
        create(name + "-target", 1);
        fill(name, 1, 10);
        TopicPartition partition = new TopicPartition(name, 0);
        try (Producer<byte[], byte[]> producer = transactional(name); Consumer<byte[], byte[]> member = member()) {
            same(take(member, 10).size(), 10);
            producer.beginTransaction();
            producer.send(record(name + "-target", 0, "committed"));
            producer.sendOffsetsToTransaction(offset(partition, 4), member.groupMetadata());
            producer.commitTransaction();
            same(member.committed(Set.of(partition)).get(partition).offset(), 4L);
            producer.beginTransaction();
            producer.send(record(name + "-target", 0, "aborted"));
            producer.sendOffsetsToTransaction(offset(partition, 8), member.groupMetadata());
            producer.abortTransaction();
            same(member.committed(Set.of(partition)).get(partition).offset(), 4L);
        }
        same(seen(name + "-target", 1), List.of("committed"));
        try (Consumer<byte[], byte[]> member = member()) {
            same(take(member, 6).get(0).offset(), 4L);
        }
    }

    /** KIP-447: offsets of one who is no longer in the group, or whose generation has passed, are refused. */
    void offsetsOfAStrangerAreRefused() throws Exception {
        create(name, 1);
        fill(name, 1, 3);
        TopicPartition partition = new TopicPartition(name, 0);
        try (Producer<byte[], byte[]> producer = transactional(name); Consumer<byte[], byte[]> member = member()) {
            take(member, 3);
            ConsumerGroupMetadata now = member.groupMetadata();
            producer.beginTransaction();
            producer.send(record(name, 0, "aborted")).get();
            var old = new ConsumerGroupMetadata(name, now.generationId() - 1, now.memberId(), Optional.empty());
            fails(CommitFailedException.class, () -> producer.sendOffsetsToTransaction(offset(partition, 3), old));
            producer.abortTransaction();
            producer.beginTransaction();
            var stranger = new ConsumerGroupMetadata(name, now.generationId(), "a stranger", Optional.empty());
            fails(CommitFailedException.class, () -> producer.sendOffsetsToTransaction(offset(partition, 3), stranger));
            producer.abortTransaction();
            same(member.committed(Set.of(partition)).get(partition), null);
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(offset(partition, 3), now);
            producer.commitTransaction();
            same(member.committed(Set.of(partition)).get(partition).offset(), 3L);
        }
    }

    void zombiesAreFenced() throws Exception {
        create(name, 1);
        try (Producer<byte[], byte[]> zombie = transactional(name); Producer<byte[], byte[]> idle = transactional(name + "-idle")) {
            zombie.beginTransaction();
            zombie.send(record(name, 0, "zombie")).get();
            try (Producer<byte[], byte[]> heir = transactional(name); Producer<byte[], byte[]> other = transactional(name + "-idle")) {
                fails(ProducerFencedException.class, zombie::commitTransaction);
                fails(ProducerFencedException.class, zombie::beginTransaction);
                heir.beginTransaction();
                heir.send(record(name, 0, "heir")).get();
                heir.commitTransaction();
                // It sends a record first after it was replaced: that error lets it abort, and only the next is that of a fenced producer.
                idle.beginTransaction();
                fails(InvalidProducerEpochException.class, () -> idle.send(record(name, 0, "idle")).get());
                fails(ProducerFencedException.class, () -> {
                    idle.abortTransaction();
                    idle.beginTransaction();
                });
            }
        }
        same(seen(name, 1), List.of("heir"));
        same(written(name, 1), List.of("zombie", "heir"));
    }

    void anAdminFencesProducers() throws Exception {
        create(name, 1);
        try (Producer<byte[], byte[]> producer = transactional(name); Admin admin = admin()) {
            producer.beginTransaction();
            producer.send(record(name, 0, "fenced")).get();
            admin.fenceProducers(List.of(name)).all().get();
            fails(ProducerFencedException.class, producer::commitTransaction);
        }
        same(seen(name, 1), List.of());
    }

    void slowTransactionsTimeOut() throws Exception {
        create(name, 1);
        Map<String, Object> config = Map.of("transactional.id", name, "transaction.timeout.ms", 1_500);
        try (Producer<byte[], byte[]> slow = producer(config)) {
            slow.initTransactions();
            slow.beginTransaction();
            slow.send(record(name, 0, "slow")).get();
            same(seen(name, 1), List.of());
            // Version 2: the time-out has raised its epoch, and by the epoch before this is a retry of what was an abort.
            fails(InvalidTxnStateException.class, slow::commitTransaction);
        }
        try (Producer<byte[], byte[]> late = producer(config)) {
            late.initTransactions();
            late.beginTransaction();
            late.send(record(name, 0, "late")).get();
            same(seen(name, 1), List.of());
            fails(InvalidProducerEpochException.class, () -> late.send(record(name, 0, "later")).get());
            late.abortTransaction();
            late.beginTransaction();
            late.send(record(name, 0, "next")).get();
            late.commitTransaction();
        }
        same(seen(name, 1), List.of("next"));
        same(written(name, 1), List.of("slow", "late", "next"));
        try (Producer<byte[], byte[]> greedy = producer(with(config, "transaction.timeout.ms", 900_001))) {
            fails(KafkaException.class, greedy::initTransactions);
        }
    }

    void transactionsThroughTheAdminClient() throws Exception {
        create(name, 2);
        TopicPartition partition = new TopicPartition(name, 1);
        try (Producer<byte[], byte[]> producer = transactional(name); Admin admin = admin()) {
            TransactionDescription empty = described(admin);
            same(empty.state(), TransactionState.EMPTY);
            same(empty.topicPartitions(), Set.of());
            same(empty.transactionTimeoutMs(), 60_000L);
            same(empty.transactionStartTimeMs().isPresent(), false);
            producer.beginTransaction();
            producer.send(record(name, 1, "value")).get();
            TransactionDescription ongoing = described(admin);
            same(ongoing.state(), TransactionState.ONGOING);
            same(ongoing.topicPartitions(), Set.of(partition));
            same(ongoing.producerId(), empty.producerId());
            same(ongoing.transactionStartTimeMs().isPresent(), true);
            ProducerState state = admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers().get(0);
            same(state.producerId(), ongoing.producerId());
            same(state.producerEpoch(), ongoing.producerEpoch());
            same(state.lastSequence(), 0);
            same(state.currentTransactionStartOffset().getAsLong(), 0L);
            same(listed(admin, new ListTransactionsOptions().filterStates(List.of(TransactionState.ONGOING))), true);
            same(listed(admin, new ListTransactionsOptions().filterStates(List.of(TransactionState.EMPTY))), false);
            same(listed(admin, new ListTransactionsOptions().filterProducerIds(List.of(ongoing.producerId()))), true);
            same(listed(admin, new ListTransactionsOptions().filterProducerIds(List.of(ongoing.producerId() + 1_000_000))), false);
            same(listed(admin, new ListTransactionsOptions().filterOnDuration(3_600_000)), false);
            producer.commitTransaction();
            eventually(() -> value(admin.describeTransactions(List.of(name)).description(name)).state() == TransactionState.COMPLETE_COMMIT);
            same(admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers().get(0)
                .currentTransactionStartOffset().isPresent(), false);

            producer.beginTransaction();
            producer.send(record(name, 1, "aborted by an admin")).get();
            ProducerState hanging = admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers().get(0);
            admin.abortTransaction(new AbortTransactionSpec(partition, hanging.producerId(), (short) hanging.producerEpoch(),
                hanging.coordinatorEpoch().orElse(0))).all().get();
            same(end(name, 1, IsolationLevel.READ_COMMITTED), end(name, 1, IsolationLevel.READ_UNCOMMITTED));
        }
        same(seen(name, 2), List.of("value"));
    }

    // -- over a restart of the broker: the producers stay, between a scenario before it and one after

    private static final List<String> STEPS = List.of("initialised", "begun", "sent", "offsets sent", "all sent", "committed");
    private static final Map<String, Producer<byte[], byte[]>> KEPT = new LinkedHashMap<>();

    void beforeARestart() throws Exception {
        KEPT.clear();
        for (String step : STEPS) {
            KEPT.put(step, begun(step));
        }
        KEPT.put("to be aborted", begun("to be aborted"));
        begun("gone").close();
    }

    void afterARestart() throws Exception {
        for (String step : STEPS) {
            finish(KEPT.get(step), step, STEPS.indexOf(step), STEPS.size() - 1);
        }
        KEPT.get("to be aborted").abortTransaction();
        try (Producer<byte[], byte[]> heir = transactional(topic("gone"))) {
            heir.beginTransaction();
            heir.send(record(topic("gone"), 0, "heir"));
            heir.commitTransaction();
        }
        try (Consumer<byte[], byte[]> member = member()) {
            for (String step : STEPS) {
                same(seen(topic(step), 2), List.of("first", "second"));
                same(written(topic(step), 2), List.of("first", "second"));
                TopicPartition partition = new TopicPartition(topic(step), 0);
                same(member.committed(Set.of(partition)).get(partition).offset(), 3L);
            }
            for (String step : List.of("to be aborted", "gone")) {
                same(seen(topic(step), 2), step.equals("gone") ? List.of("heir") : List.of());
                TopicPartition partition = new TopicPartition(topic(step), 0);
                same(member.committed(Set.of(partition)).get(partition), null);
            }
        }
        for (String step : STEPS) {
            KEPT.get(step).beginTransaction();
            KEPT.get(step).send(record(topic(step), 1, "next"));
            KEPT.get(step).commitTransaction();
            same(seen(topic(step), 2), List.of("first", "second", "next"));
        }
        KEPT.values().forEach(Producer::close);
    }

    private Producer<byte[], byte[]> begun(String step) throws Exception {
        create(topic(step), 2);
        Producer<byte[], byte[]> producer = transactional(topic(step));
        finish(producer, step, 0, STEPS.contains(step) ? STEPS.indexOf(step) : STEPS.indexOf("all sent"));
        return producer;
    }

    /** Does the actions of a transaction from one step up to another. */
    private void finish(Producer<byte[], byte[]> producer, String step, int from, int to) throws Exception {
        String topic = topic(step);
        List<Action> actions = List.of(
            producer::beginTransaction,
            () -> producer.send(record(topic, 0, "first")).get(),
            () -> producer.sendOffsetsToTransaction(offset(new TopicPartition(topic, 0), 3), new ConsumerGroupMetadata(name)),
            () -> producer.send(record(topic, 1, "second")).get(),
            producer::commitTransaction);
        for (Action action : actions.subList(from, to)) {
            action.run();
        }
    }

    private String topic(String step) {
        return name + "-" + step.replace(' ', '-');
    }

    // -- what they share

    private Producer<byte[], byte[]> transactional(String id) {
        Producer<byte[], byte[]> producer = producer(Map.of("transactional.id", id));
        producer.initTransactions();
        return producer;
    }

    private Consumer<byte[], byte[]> member() {
        Consumer<byte[], byte[]> consumer = consumer(Map.of("group.id", name, "isolation.level", "read_committed"));
        consumer.subscribe(List.of(name));
        return consumer;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, String value) {
        return new ProducerRecord<>(topic, partition, null, bytes(value));
    }

    private static Map<TopicPartition, OffsetAndMetadata> offset(TopicPartition partition, long offset) {
        return Map.of(partition, new OffsetAndMetadata(offset));
    }

    /** By read_committed when all transactions have ended: the end is answered before its markers are in. */
    private List<String> seen(String topic, int partitions) {
        for (int number = 0; number < partitions; number++) {
            int partition = number;
            eventually(() -> end(topic, partition, IsolationLevel.READ_COMMITTED) == end(topic, partition, IsolationLevel.READ_UNCOMMITTED));
        }
        return values(topic, partitions, IsolationLevel.READ_COMMITTED);
    }

    private List<String> written(String topic, int partitions) {
        return values(topic, partitions, IsolationLevel.READ_UNCOMMITTED);
    }

    /** Everything up to the end, partition by partition. */
    private List<String> values(String topic, int count, IsolationLevel level) {
        List<TopicPartition> partitions = IntStream.range(0, count).mapToObj(number -> new TopicPartition(topic, number)).toList();
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        Map<String, Object> config = new HashMap<>(Map.of("isolation.level", level.toString(), "fetch.max.wait.ms", 20));
        try (Consumer<byte[], byte[]> consumer = consumer(config)) {
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            eventually(() -> {
                consumer.poll(POLL.dividedBy(4)).forEach(found::add);
                return ends.entrySet().stream().allMatch(it -> consumer.position(it.getKey()) >= it.getValue());
            });
        }
        found.sort(Comparator.<ConsumerRecord<byte[], byte[]>>comparingInt(ConsumerRecord::partition).thenComparingLong(ConsumerRecord::offset));
        return found.stream().map(record -> new String(record.value(), UTF_8)).toList();
    }

    private long end(String topic, int partition, IsolationLevel level) {
        TopicPartition tp = new TopicPartition(topic, partition);
        try (Admin admin = admin()) {
            return value(admin.listOffsets(Map.of(tp, OffsetSpec.latest()), new ListOffsetsOptions(level)).partitionResult(tp)).offset();
        }
    }

    private TransactionDescription described(Admin admin) {
        return value(admin.describeTransactions(List.of(name)).description(name));
    }

    private boolean listed(Admin admin, ListTransactionsOptions options) {
        return value(admin.listTransactions(options).all()).stream().anyMatch(it -> it.transactionalId().equals(name));
    }
}
