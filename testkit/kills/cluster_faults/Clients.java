import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer, a transactional one and a member of a group, each in a thread, with Kafka's defaults. The results of their
 * calls are printed, an event a line; load.py notes them.
 *
 * Arguments: the brokers, the topics of the two producers, the group and the topics it reads, how many partitions each topic has, how
 * many records the first producer writes before it pauses and for how many ms, one in how many transactions is aborted on purpose.
 *
 * The line "finish writing" on the standard input ends the producers, and its end the process.
 */
public final class Clients {
    private static final long COMMIT_EVERY_MS = 1_000;
    private static final PrintStream OUT = System.out;

    private final String brokers;
    private final int partitions;
    private final int batch;
    private final long pauseMs;
    private final int abortsOneIn;
    private volatile boolean isWriting = true;
    private volatile boolean isReading = true;

    private Clients(String[] arguments) {
        brokers = arguments[0];
        partitions = Integer.parseInt(arguments[5]);
        batch = Integer.parseInt(arguments[6]);
        pauseMs = Long.parseLong(arguments[7]);
        abortsOneIn = Integer.parseInt(arguments[8]);
    }

    public static void main(String[] arguments) throws Exception {
        Clients clients = new Clients(arguments);
        Thread writing = started(() -> clients.write(arguments[1]));
        Thread transactions = started(() -> clients.writeTransactions(arguments[2]));
        Thread reading = started(() -> clients.read(arguments[3], List.of(arguments[4].split(","))));
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        commands.readLine();
        clients.isWriting = false;
        writing.join();
        transactions.join();
        report("wrote-all");
        commands.readLine();
        clients.isReading = false;
        reading.join();
    }

    private static Thread started(Runnable work) {
        Thread thread = new Thread(work);
        thread.setUncaughtExceptionHandler((it, error) -> {
            report("ended " + error);
            OUT.flush();
            Runtime.getRuntime().halt(1);
        });
        thread.start();
        return thread;
    }

    private static void report(String event) {
        OUT.println(event);
    }

    private static long nowMs() {
        return System.nanoTime() / 1_000_000;
    }

    private void pause() {
        try {
            Thread.sleep(pauseMs);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private KafkaProducer<String, String> producer(Map<String, ?> more) {
        Properties config = new Properties();
        config.put("bootstrap.servers", brokers);
        config.putAll(more);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    private void write(String topic) {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (long number = 0; isWriting; pause()) {
                for (int count = 0; count < batch; count++, number++) {
                    String value = Long.toString(number);
                    long sentMs = nowMs();
                    producer.send(new ProducerRecord<>(topic, (int) (number % partitions), null, value), (about, error) -> {
                        if (error == null) {
                            report("acknowledged " + about.partition() + " " + about.offset() + " " + value + " " + (nowMs() - sentMs));
                        } else {
                            report("refused " + error);
                        }
                    });
                }
            }
        }
    }

    private void writeTransactions(String topic) {
        KafkaProducer<String, String> producer = transactionalProducer(topic);
        for (long number = 0; isWriting; number++, pause()) {
            try {
                writeTransaction(producer, topic, number);
            } catch (KafkaException | IllegalStateException error) {
                report("failed " + error + (error.getCause() == null ? "" : ", caused by " + error.getCause()));
                try {
                    retried(producer::abortTransaction);
                    report("aborted " + number);
                } catch (KafkaException | IllegalStateException fatal) {
                    report("unknown " + number);
                    producer.close(Duration.ZERO);
                    producer = transactionalProducer(topic);
                }
            }
        }
        producer.close();
    }

    private KafkaProducer<String, String> transactionalProducer(String transactionalId) {
        KafkaProducer<String, String> producer = producer(Map.of("transactional.id", transactionalId));
        retried(producer::initTransactions);
        return producer;
    }

    private void writeTransaction(KafkaProducer<String, String> producer, String topic, long number) {
        long beganMs = nowMs();
        producer.beginTransaction();
        for (int partition = 0; partition < partitions; partition++) {
            producer.send(new ProducerRecord<>(topic, partition, null, Long.toString(number)));
        }
        if (number % abortsOneIn == abortsOneIn - 1) {
            producer.flush(); // otherwise there would be nothing to abort
            retried(producer::abortTransaction);
            report("aborted " + number);
        } else {
            retried(producer::commitTransaction);
            report("committed " + number + " " + (nowMs() - beganMs));
        }
    }

    /** A call that has timed out may be made again, and only the same. */
    private static void retried(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                report("failed " + error);
            }
        }
    }

    private void read(String group, List<String> topics) {
        Properties config = new Properties();
        config.put("bootstrap.servers", brokers);
        config.put("group.id", group);
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(topics);
            for (long commitMs = nowMs(); isReading; ) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                for (TopicPartition spot : records.partitions()) {
                    String offsets = records.records(spot).stream()
                        .map(record -> Long.toString(record.offset()))
                        .collect(Collectors.joining(","));
                    report("delivered " + spot.topic() + " " + spot.partition() + " " + offsets);
                }
                if (nowMs() > commitMs) {
                    commit(consumer);
                    commitMs = nowMs() + COMMIT_EVERY_MS;
                }
            }
        }
    }

    private static void commit(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        try {
            for (TopicPartition spot : consumer.assignment()) {
                offsets.put(spot, new OffsetAndMetadata(consumer.position(spot)));
            }
            consumer.commitSync(offsets);
        } catch (RetriableException | org.apache.kafka.clients.consumer.CommitFailedException error) {
            return; // not acknowledged, since the group is being rebalanced, or its coordinator is away for long
        }
        offsets.forEach((spot, it) -> report("group-committed " + spot.topic() + " " + spot.partition() + " " + it.offset()));
    }
}
