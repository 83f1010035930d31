import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApplicationRecoverableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * As teller.py, with Kafka's own client, which begins a transaction with its first batch and has a new epoch for each (KIP-890).
 *
 * Arguments: the broker, the transactional id and its time-out in ms, the group, the topic with orders and this teller's partitions
 * of it, the topic for accounts and how many partitions it has, a seed, the code to end with at an error, one in how many
 * transactions is aborted on purpose.
 */
public final class Teller {
    private static final int MOST_AT_ONCE = 2;
    private static final int CALL_TIMEOUT_MS = 10_000;

    private final KafkaProducer<String, String> producer;
    private final KafkaConsumer<String, String> consumer;
    private final Set<TopicPartition> spots;
    private final String accounts;
    private final int partitions;
    private final Random random;
    private final int oneIn;

    private Teller(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("reconnect.backoff.ms", 10);
        config.put("reconnect.backoff.max.ms", 100);
        config.put("retry.backoff.ms", 20);
        config.put("retry.backoff.max.ms", 100);
        Properties producing = new Properties();
        producing.putAll(config);
        producing.put("transactional.id", arguments[1]);
        producing.put("transaction.timeout.ms", arguments[2]);
        producing.put("max.block.ms", CALL_TIMEOUT_MS);
        producing.put("request.timeout.ms", arguments[2]);
        producing.put("delivery.timeout.ms", CALL_TIMEOUT_MS);
        producer = new KafkaProducer<>(producing, new StringSerializer(), new StringSerializer());
        Properties consuming = new Properties();
        consuming.putAll(config);
        consuming.put("group.id", arguments[3]);
        consuming.put("isolation.level", "read_committed");
        consuming.put("enable.auto.commit", false);
        consuming.put("auto.offset.reset", "none");
        consuming.put("max.poll.records", MOST_AT_ONCE);
        consuming.put("fetch.max.wait.ms", 50);
        consuming.put("default.api.timeout.ms", CALL_TIMEOUT_MS);
        consumer = new KafkaConsumer<>(consuming, new StringDeserializer(), new StringDeserializer());
        spots = Arrays.stream(arguments[5].split(","))
            .map(place -> new TopicPartition(arguments[4], Integer.parseInt(place)))
            .collect(Collectors.toSet());
        accounts = arguments[6];
        partitions = Integer.parseInt(arguments[7]);
        random = new Random(Long.parseLong(arguments[8]));
        oneIn = Integer.parseInt(arguments[10]);
    }

    public static void main(String[] arguments) {
        try {
            new Teller(arguments).work();
        } catch (KafkaException | IllegalStateException error) {
            // IllegalStateException: a commit that timed out may be repeated but not aborted.
            System.err.println(arguments[1] + " " + error + (error.getCause() == null ? "" : ", caused by " + error.getCause()));
            Runtime.getRuntime().halt(Integer.parseInt(arguments[9]));
        }
    }

    private void work() {
        producer.initTransactions();
        resume();
        long master = master();
        while (master() == master) {
            ConsumerRecords<String, String> taken = consumer.poll(Duration.ofMillis(100));
            if (taken.isEmpty()) {
                continue;
            }
            try {
                book(taken);
            } catch (ApplicationRecoverableException | TimeoutException error) {
                throw error;
            } catch (KafkaException error) {
                abort();
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static long master() {
        return ProcessHandle.current().parent().map(ProcessHandle::pid).orElse(0L);
    }

    private void resume() {
        Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(spots);
        consumer.assign(spots);
        for (TopicPartition spot : spots) {
            OffsetAndMetadata committed = found.get(spot);
            consumer.seek(spot, committed == null ? 0L : committed.offset());
        }
    }

    private void book(ConsumerRecords<String, String> taken) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
        for (ConsumerRecord<String, String> record : taken) {
            List<String> order = Arrays.asList(record.value().split(" "));
            write(order.get(0), order.get(1), "-" + order.get(3));
            write(order.get(0), order.get(2), order.get(3));
            behind.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(behind, consumer.groupMetadata());
        if (random.nextInt(oneIn) == 0) {
            abort();
        } else {
            producer.commitTransaction();
        }
    }

    private void write(String number, String account, String amount) {
        int partition = Integer.parseInt(account) % partitions;
        producer.send(new ProducerRecord<>(accounts, partition, null, number + " " + account + " " + amount));
    }

    private void abort() {
        producer.abortTransaction();
        resume();
    }
}
