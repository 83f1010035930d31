import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyQueryMetadata;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.StreamsMetadata;
import org.apache.kafka.streams.TaskMetadata;
import org.apache.kafka.streams.ThreadMetadata;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.HostInfo;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * Instances of the word count in one process, which commands start and stop. Each has a local state of its own, as if it were a
 * process of its own.
 *
 * A command is a line of words, and so is its answer. Lists in it have commas, lists in lists semicolons, and "-" stands for nothing.
 *
 *   start NAME     an instance whose endpoint is NAME:1           ok
 *   leave NAME     it leaves its group                            ok
 *   tasks NAME     its active and its standby tasks               ACTIVE STANDBY
 *   restored NAME  records it has restored into active tasks      COUNT
 *   count NAME KEY its own count, standby tasks apart             COUNT
 *   where NAME KEY hosts with the key's task and its standby      ACTIVE STANDBY
 *   hosts NAME     all hosts: active and standby partitions       HOST=ACTIVE/STANDBY,...
 *
 * Arguments: those of WordCount.
 */
public final class Instances {
    private static final Map<String, KafkaStreams> RUNNING = new TreeMap<>();
    private static final Map<String, AtomicLong> RESTORED = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            answers.println(answer(line.split(" "), arguments));
            answers.flush();
        }
    }

    private static String answer(String[] command, String[] arguments) {
        String name = command[1];
        KafkaStreams streams = RUNNING.get(name);
        switch (command[0]) {
            case "start":
                RUNNING.put(name, started(name, arguments));
                return "ok";
            case "leave":
                RUNNING.remove(name).close(
                    CloseOptions.timeout(Duration.ofSeconds(20)).withGroupMembershipOperation(GroupMembershipOperation.LEAVE_GROUP));
                return "ok";
            case "tasks":
                return tasks(streams, ThreadMetadata::activeTasks) + " " + tasks(streams, ThreadMetadata::standbyTasks);
            case "restored":
                return RESTORED.get(name).toString();
            case "count":
                return count(streams, command[2]);
            case "where":
                KeyQueryMetadata found = streams.queryMetadataForKey(WordCount.STORE, command[2], Serdes.String().serializer());
                return found.equals(KeyQueryMetadata.NOT_AVAILABLE)
                    ? "- -"
                    : found.activeHost().host() + " " + list(found.standbyHosts(), HostInfo::host);
            case "hosts":
                return list(streams.streamsMetadataForStore(WordCount.STORE), Instances::host);
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private static KafkaStreams started(String name, String[] arguments) {
        Properties config = WordCount.config(arguments[0], arguments[1], arguments[4] + "/" + name, arguments[5]);
        config.put(StreamsConfig.APPLICATION_SERVER_CONFIG, name + ":1");
        config.put(StreamsConfig.CLIENT_ID_CONFIG, name);
        if (arguments[5].equals("classic")) {
            config.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, 1);
        }
        KafkaStreams streams = new KafkaStreams(WordCount.topology(arguments[2], arguments[3]), config);
        AtomicLong restored = new AtomicLong();
        RESTORED.put(name, restored);
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override
            public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
            }

            @Override
            public void onBatchRestored(TopicPartition partition, String store, long to, long count) {
                restored.addAndGet(count);
            }

            @Override
            public void onRestoreEnd(TopicPartition partition, String store, long count) {
            }
        });
        streams.start();
        return streams;
    }

    private static String tasks(KafkaStreams streams, Function<ThreadMetadata, Set<TaskMetadata>> kind) {
        Set<TaskMetadata> tasks = streams.metadataForLocalThreads().stream().flatMap(it -> kind.apply(it).stream()).collect(Collectors.toSet());
        return list(tasks, it -> it.taskId().toString());
    }

    private static String count(KafkaStreams streams, String key) {
        try {
            Object count = streams.store(StoreQueryParameters.fromNameAndType(WordCount.STORE, QueryableStoreTypes.keyValueStore())).get(key);
            return count == null ? "-" : count.toString();
        } catch (InvalidStateStoreException restoring) {
            return "-";
        }
    }

    private static String host(StreamsMetadata it) {
        return it.host() + "=" + partitions(it.topicPartitions()) + "/" + partitions(it.standbyTopicPartitions());
    }

    private static String partitions(Set<TopicPartition> partitions) {
        return list(partitions, TopicPartition::toString).replace(",", ";");
    }

    private static <T> String list(Collection<T> things, Function<T, String> name) {
        return things.isEmpty() ? "-" : things.stream().map(name).sorted().collect(Collectors.joining(","));
    }
}
