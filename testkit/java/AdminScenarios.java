import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** What Kafka's own Java admin client does with a broker. */
public final class AdminScenarios extends Scenarios {
    public static void main(String[] arguments) throws Throwable {
        run(new AdminScenarios(), arguments);
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

    /** By the same leader: with another one the consumer may take the new log for the old one cut short (KIP-320). */
    void topicMadeAgainUnderAConsumer() throws Exception {
        createAtBroker1(name);
        fill(name, 1, 5);
        try (Admin admin = admin(); Consumer<byte[], byte[]> consumer = consumer(Map.of("metadata.max.age.ms", 300, "allow.auto.create.topics", false))) {
            consumer.assign(List.of(new TopicPartition(name, 0)));
            take(consumer, 5);
            admin.deleteTopics(List.of(name)).all().get();
            eventually(() -> !value(admin.listTopics().names()).contains(name));
            createAtBroker1(name);
            fill(name, 1, 3);
            List<Long> offsets = new ArrayList<>();
            eventually(() -> {
                consumer.poll(POLL).forEach(record -> offsets.add(record.offset()));
                return offsets.size() >= 3;
            });
            same(offsets, List.of(0L, 1L, 2L));
        }
    }

    void invalidNames() throws Exception {
        try (Producer<byte[], byte[]> producer = producer(Map.of("max.block.ms", 10_000)); Admin admin = admin()) {
            fails(InvalidTopicException.class, () -> producer.send(new ProducerRecord<>("not/valid", new byte[1])).get());
            fails(InvalidTopicException.class, () -> admin.createTopics(List.of(new NewTopic("no spaces", 1, (short) 1))).all().get());
            fails(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(name)).all().get());
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
}
