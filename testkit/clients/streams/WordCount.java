import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of one topic into another, exactly once. Every change of a count is written, so that an output that was written twice,
 * or a word that was counted twice, is to be seen.
 *
 * Arguments: the broker, the application's name, the topic with lines, the topic for counts, the folder for local state, and the
 * protocol of its group, "classic" or "streams".
 */
public final class WordCount {
    static final String STORE = "counts";

    /** Settings that suit tests: all happens soon. With the streams protocol, sessions and heartbeats are the broker's to choose. */
    static Properties config(String bootstrap, String name, String folder, String protocol) {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, name);
        config.put(StreamsConfig.STATE_DIR_CONFIG, folder);
        config.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, protocol);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        config.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 20);
        // The transaction of a killed instance ends soon even if nobody uses its id again, and so do its session and its partitions.
        config.put(StreamsConfig.producerPrefix("transaction.timeout.ms"), 5_000);
        if (protocol.equals("classic")) {
            config.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 2_000);
            config.put(StreamsConfig.consumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), 300);
        }
        return config;
    }

    static Topology topology(String lines, String counts) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(lines, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(STORE, Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore(STORE)).withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues((word, count) -> word + " " + count)
            .to(counts, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    public static void main(String[] arguments) throws Exception {
        Properties config = config(arguments[0], arguments[1], arguments[4], arguments[5]);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        KafkaStreams streams = new KafkaStreams(topology(arguments[2], arguments[3]), config);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("a thread ended: " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        CountDownLatch end = new CountDownLatch(1);
        streams.setStateListener((now, before) -> System.out.println(now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(20));
            end.countDown();
        }));
        streams.start();
        end.await();
    }
}
