import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.errors.LogDirNotFoundException;

/** What Kafka's own Java admin client does with the log dirs of a broker that has several. */
public final class FolderScenarios extends Scenarios {
    public static void main(String[] arguments) throws Throwable {
        run(new FolderScenarios(), arguments);
    }

    void partitionsMovedBetweenFolders() throws Exception {
        create(name, 1);
        try (Admin admin = admin(); Producer<byte[], byte[]> producer = producer(Map.of())) {
            int broker = 1; // the one that has several
            TopicPartition partition = new TopicPartition(name, 0);
            TopicPartitionReplica replica = new TopicPartitionReplica(name, 0, broker);
            for (int number = 0; number < 100; number++) {
                producer.send(new ProducerRecord<>(name, 0, null, new byte[1000])).get();
            }
            Map<String, LogDirDescription> folders = admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
            same(folders.size(), 2);
            List<String> others = new ArrayList<>(new TreeSet<>(folders.keySet()));
            String first = admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir();
            others.remove(first);
            same(others.size(), 1);
            LogDirDescription description = folders.get(first);
            same(description.error(), null);
            same(description.replicaInfos().get(partition).size() > 100_000, true);
            same(description.replicaInfos().get(partition).isFuture(), false);
            same(description.totalBytes().getAsLong() >= description.usableBytes().getAsLong(), true);

            admin.alterReplicaLogDirs(Map.of(replica, others.get(0))).all().get();
            eventually(() -> {
                var info = value(admin.describeReplicaLogDirs(List.of(replica)).all()).get(replica);
                return others.get(0).equals(info.getCurrentReplicaLogDir()) && info.getFutureReplicaLogDir() == null;
            });
            same(producer.send(new ProducerRecord<>(name, 0, null, new byte[1])).get().offset(), 100L);
            // It is there: nothing to do, and no error.
            admin.alterReplicaLogDirs(Map.of(replica, others.get(0))).all().get();
            fails(LogDirNotFoundException.class, () -> admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all().get());
        }
    }
}
