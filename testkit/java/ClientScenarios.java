import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;

/** What Kafka's own Java producer and consumer do with a broker. */
public final class ClientScenarios extends Scenarios {
    public static void main(String[] arguments) throws Throwable {
        run(new ClientScenarios(), arguments);
    }

    private void awaitEnd(long end) {
        TopicPartition only = new TopicPartition(name, 0);
        try (Consumer<byte[], byte[]> consumer = reader(0)) {
            eventually(() -> consumer.endOffsets(List.of(only)).get(only) == end);
        }
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
                awaitEnd(sent);  // with acks=0 they may still be on the way, and the next producer's would be first
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
}
