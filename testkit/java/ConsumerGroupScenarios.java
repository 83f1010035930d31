import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.CloseOptions.GroupMembershipOperation;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.errors.UnsupportedAssignorException;

/** What Kafka's own Java consumer does in groups of the consumer protocol (KIP-848). */
public final class ConsumerGroupScenarios extends Scenarios {
    private static final int SESSION_MS = 1_500;

    public static void main(String[] arguments) throws Throwable {
        ConsumerGroupScenarios scenarios = new ConsumerGroupScenarios();
        scenarios.protocol = "consumer";
        run(scenarios, arguments);
    }

    /**
     * On Apache Kafka a pattern is looked at again every 10 s at most. That topics go is in test_confluent_groups.py: this client, at
     * 4.3.1, loses answers when it requests a deleted topic by its id (IllegalStateException in MetadataResponse.errors).
     */
    void subscriptionByPattern() throws Exception {
        create(name + "-a", 1);
        create(name + "-b", 2);
        create(name + "-other", 1);
        try (Consumer<byte[], byte[]> consumer = member(); Consumer<byte[], byte[]> wrong = member()) {
            wrong.subscribe(new SubscriptionPattern("("));
            fails(InvalidRegularExpression.class, () -> eventually(() -> polled(wrong) && false));
            consumer.subscribe(new SubscriptionPattern(name + "-[a-d]+"));
            eventually(() -> polled(consumer) && assigned(consumer).equals(Set.of("a-0", "b-0", "b-1")));
            create(name + "-c", 1);
            eventually(() -> polled(consumer) && assigned(consumer).equals(Set.of("a-0", "b-0", "b-1", "c-0")));
            consumer.subscribe(new SubscriptionPattern(".*" + name + "-(other|a)"));
            eventually(() -> polled(consumer) && assigned(consumer).equals(Set.of("a-0", "other-0")));
            fill(name + "-other", 1, 3);
            same(take(consumer, 3).get(0).topic(), name + "-other");
        }
    }

    void instancesInUse() throws Exception {
        create(name, 2);
        try (Consumer<byte[], byte[]> first = instance("one"); Consumer<byte[], byte[]> second = instance("one")) {
            subscribed(first, 2);
            second.subscribe(List.of(name));
            fails(UnreleasedInstanceIdException.class, () -> eventually(() -> polled(second) && false));
            eventually(() -> polled(first) && first.assignment().size() == 2);
        }
    }

    /** KIP-1092. A member that is not static leaves even with REMAIN_IN_GROUP. */
    void waysToClose() throws Exception {
        create(name, 4);
        shortSessions();
        try (Admin admin = admin(); Consumer<byte[], byte[]> one = member()) {
            for (boolean isStatic : new boolean[] {false, true}) {
                for (GroupMembershipOperation how : GroupMembershipOperation.values()) {
                    Consumer<byte[], byte[]> other = isStatic ? instance("two") : member();
                    other.subscribe(List.of(name));
                    one.subscribe(List.of(name));
                    eventually(() -> polled(one) & polled(other) && one.assignment().size() == 2 && other.assignment().size() == 2);
                    other.close(CloseOptions.groupMembershipOperation(how));
                    boolean stays = isStatic && how != GroupMembershipOperation.LEAVE_GROUP;
                    same(how + " leaves " + group(admin).members().size(), how + " leaves " + (stays ? 2 : 1));
                    eventually(() -> polled(one) && one.assignment().size() == 4);  // when its session has ended
                }
            }
        }
    }

    void assignorsOfTheCoordinator() throws Exception {
        create(name, 3);
        create(name + "-other", 3);
        Map<String, Object> range = Map.of("group.remote.assignor", "range");
        try (Admin admin = admin(); Consumer<byte[], byte[]> one = member(range); Consumer<byte[], byte[]> two = member(range);
                Consumer<byte[], byte[]> wrong = member(Map.of("group.remote.assignor", "no-such-assignor"))) {
            for (Consumer<byte[], byte[]> consumer : List.of(one, two)) {
                consumer.subscribe(List.of(name, name + "-other"));
            }
            eventually(() -> polled(one) & polled(two) && Set.of(one.assignment().size(), two.assignment().size()).equals(Set.of(4, 2)));
            for (Consumer<byte[], byte[]> consumer : List.of(one, two)) {  // of both topics the same
                same(partitions(consumer, name), partitions(consumer, name + "-other"));
            }
            same(group(admin).partitionAssignor(), "range");
            wrong.subscribe(List.of(name));
            fails(UnsupportedAssignorException.class, () -> eventually(() -> polled(wrong) && false));
        }
        try (Admin admin = admin(); Consumer<byte[], byte[]> one = member(); Consumer<byte[], byte[]> two = member()) {
            for (Consumer<byte[], byte[]> consumer : List.of(one, two)) {
                consumer.subscribe(List.of(name, name + "-other"));
            }
            eventually(() -> polled(one) & polled(two) && one.assignment().size() == 3 && two.assignment().size() == 3);
            same(group(admin).partitionAssignor(), "uniform");
        }
    }

    void changesOfTheSubscription() throws Exception {
        create(name + "-a", 2);
        create(name + "-b", 1);
        try (Admin admin = admin(); Consumer<byte[], byte[]> consumer = member(); Consumer<byte[], byte[]> other = member()) {
            consumer.subscribe(List.of(name + "-a"));
            eventually(() -> polled(consumer) && assigned(consumer).equals(Set.of("a-0", "a-1")));
            consumer.subscribe(List.of(name + "-b"));
            eventually(() -> polled(consumer) && assigned(consumer).equals(Set.of("b-0")));
            consumer.subscribe(List.of(name + "-a", name + "-b"));
            eventually(() -> polled(consumer) && consumer.assignment().size() == 3);
            other.subscribe(List.of(name + "-a"));
            eventually(() -> polled(consumer) & polled(other) && other.assignment().size() + consumer.assignment().size() == 3
                && !other.assignment().isEmpty());
            consumer.unsubscribe();
            same(consumer.assignment(), Set.of());
            eventually(() -> polled(other) && assigned(other).equals(Set.of("a-0", "a-1")));
            same(group(admin).members().size(), 1);
            consumer.subscribe(List.of(name + "-b"));
            eventually(() -> polled(consumer) & polled(other) && assigned(consumer).equals(Set.of("b-0")));
        }
    }

    void partitionsAdded() throws Exception {
        create(name, 1);
        try (Admin admin = admin(); Consumer<byte[], byte[]> consumer = member()) {
            subscribed(consumer, 1);
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(4))).all().get();
            awaitPartitions(admin, name, 4);
            eventually(() -> polled(consumer) && consumer.assignment().size() == 4);
            fill(name, 4, 1);
            take(consumer, 4);
        }
    }

    /** By the same leader, see AdminScenarios. */
    void subscribedTopicMadeAgain() throws Exception {
        createAtBroker1(name);
        fill(name, 1, 5);
        try (Admin admin = admin(); Consumer<byte[], byte[]> consumer = member(Map.of("metadata.max.age.ms", 300, "allow.auto.create.topics", false))) {
            consumer.subscribe(List.of(name));
            take(consumer, 5);
            consumer.commitSync();
            admin.deleteTopics(List.of(name)).all().get();
            eventually(() -> polled(consumer) && consumer.assignment().isEmpty());
            createAtBroker1(name);
            fill(name, 1, 3);
            same(take(consumer, 3).stream().map(record -> record.offset()).toList(), List.of(0L, 1L, 2L));
        }
    }

    /** A member that does not poll leaves by itself; it may not commit what others have by now. */
    void tooLongBetweenPolls() throws Exception {
        create(name, 2);
        fill(name, 2, 3);
        List<TopicPartition> lost = new ArrayList<>();
        try (Admin admin = admin(); Consumer<byte[], byte[]> lazy = member(Map.of("max.poll.interval.ms", 500, "max.poll.records", 1));
                Consumer<byte[], byte[]> other = member()) {
            lazy.subscribe(List.of(name), new Listener(lost));
            eventually(() -> polled(lazy) && lazy.assignment().size() == 2);
            take(lazy, 1);  // so that it has a position to commit
            eventually(() -> group(admin).members().isEmpty());
            subscribed(other, 2);
            fails(CommitFailedException.class, lazy::commitSync);
            eventually(() -> polled(lazy) & polled(other) && lazy.assignment().size() == 1 && other.assignment().size() == 1);
            same(lost.size(), 2);
        }
    }

    void membersRemovedByAnAdministrator() throws Exception {
        create(name, 2);
        fill(name, 2, 2);
        List<TopicPartition> lost = new ArrayList<>();
        try (Admin admin = admin(); Consumer<byte[], byte[]> consumer = member()) {
            consumer.subscribe(List.of(name), new Listener(lost));
            take(consumer, 4);
            consumer.commitSync();
            String member = consumer.groupMetadata().memberId();
            admin.removeMembersFromConsumerGroup(name, new RemoveMembersFromConsumerGroupOptions()).all().get();
            eventually(() -> polled(consumer) && lost.size() == 2 && consumer.assignment().size() == 2);
            same(consumer.groupMetadata().memberId(), member);
            fill(name, 2, 1);
            take(consumer, 2);
            consumer.commitSync();
        }
    }

    void groupTypesAndStates() throws Exception {
        create(name, 1);
        try (Admin admin = admin()) {
            try (Consumer<byte[], byte[]> consumer = member()) {
                subscribed(consumer, 1);
                ConsumerGroupDescription group = group(admin);
                same(group.type(), GroupType.CONSUMER);
                same(group.groupState(), GroupState.STABLE);
                same(group.groupEpoch().isPresent() && group.groupEpoch().equals(group.targetAssignmentEpoch()), true);
                var member = group.members().iterator().next();
                same(member.memberEpoch(), group.groupEpoch());
                same(member.upgraded().get(), true);
                same(member.targetAssignment().get().topicPartitions(), member.assignment().topicPartitions());
            }
            same(group(admin).groupState(), GroupState.EMPTY);
            var listed = admin.listGroups().all().get().stream().filter(it -> it.groupId().equals(name)).findFirst().get();
            same(listed.type().get(), GroupType.CONSUMER);
            admin.deleteConsumerGroups(List.of(name)).all().get();
        }
    }

    // -- what they share

    private record Listener(List<TopicPartition> lost) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            lost.addAll(partitions);
        }
    }

    private Consumer<byte[], byte[]> member() {
        return member(Map.of());
    }

    private Consumer<byte[], byte[]> member(Map<String, Object> config) {
        return consumer(with(config, "group.id", name));
    }

    private Consumer<byte[], byte[]> instance(String id) {
        return member(Map.of("group.instance.id", id));
    }

    private void subscribed(Consumer<byte[], byte[]> consumer, int partitions) {
        consumer.subscribe(List.of(name));
        eventually(() -> polled(consumer) && consumer.assignment().size() == partitions);
    }

    private void shortSessions() throws Exception {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, name);
        ConfigEntry session = new ConfigEntry("consumer.session.timeout.ms", "" + SESSION_MS);
        try (Admin admin = admin()) {
            admin.incrementalAlterConfigs(Map.of(group, List.of(new AlterConfigOp(session, AlterConfigOp.OpType.SET)))).all().get();
            eventually(() -> value(admin.describeConfigs(List.of(group)).values().get(group)).get(session.name()).value().equals(session.value()));
        }
    }

    private ConsumerGroupDescription group(Admin admin) {
        return value(admin.describeConsumerGroups(List.of(name)).describedGroups().get(name));
    }

    /** Without the scenario's name, which topics begin with. */
    private Set<String> assigned(Consumer<byte[], byte[]> consumer) {
        return consumer.assignment().stream().map(it -> it.toString().substring(name.length() + 1)).collect(Collectors.toSet());
    }

    private static Set<Integer> partitions(Consumer<byte[], byte[]> consumer, String topic) {
        return consumer.assignment().stream().filter(it -> it.topic().equals(topic)).map(TopicPartition::partition)
            .collect(Collectors.toCollection(TreeSet::new));
    }
}
