package kafka.server.share;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.PriorityQueue;
import java.util.Scanner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.Future;
import java.util.function.Supplier;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.consumer.internals.ShareAcquireMode;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.server.share.acknowledge.ShareAcknowledgementBatch;
import org.apache.kafka.server.share.fetch.DelayedShareFetchKey;
import org.apache.kafka.server.share.fetch.InFlightBatch;
import org.apache.kafka.server.share.fetch.InFlightState;
import org.apache.kafka.server.share.persister.DeleteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.DeleteShareGroupStateResult;
import org.apache.kafka.server.share.persister.InitializeShareGroupStateParameters;
import org.apache.kafka.server.share.persister.InitializeShareGroupStateResult;
import org.apache.kafka.server.share.persister.PartitionFactory;
import org.apache.kafka.server.share.persister.PartitionStateBatchData;
import org.apache.kafka.server.share.persister.Persister;
import org.apache.kafka.server.share.persister.PersisterStateBatch;
import org.apache.kafka.server.share.persister.ReadShareGroupStateParameters;
import org.apache.kafka.server.share.persister.ReadShareGroupStateResult;
import org.apache.kafka.server.share.persister.ReadShareGroupStateSummaryParameters;
import org.apache.kafka.server.share.persister.ReadShareGroupStateSummaryResult;
import org.apache.kafka.server.share.persister.TopicData;
import org.apache.kafka.server.share.persister.WriteShareGroupStateParameters;
import org.apache.kafka.server.share.persister.WriteShareGroupStateResult;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.storage.log.FetchPartitionData;
import org.apache.kafka.server.util.timer.Timer;
import org.apache.kafka.server.util.timer.TimerTask;
import org.apache.kafka.server.util.timer.TimerTaskEntry;

/**
 * Apache Kafka's own SharePartition, called line by line. It is in Kafka's package to reach what is not public. Its
 * clock, timer and persister are driven by the lines. test_against_kafka.py has the other side.
 */
public final class Judge {
    private static final Uuid TOPIC = new Uuid(1, 2);
    private static long now = 0;
    private static final List<CompletableFuture<WriteShareGroupStateResult>> writes = new ArrayList<>();
    private static final Map<Integer, CompletableFuture<Void>> requests = new HashMap<>();
    private static final StringBuilder written = new StringBuilder();
    private static ReadShareGroupStateResult persisted;
    private static DueTasks tasks;
    private static SharePartition partition;

    private static final class Clock implements Time {
        public long milliseconds() {
            return now;
        }

        public long hiResClockMs() {
            return now;
        }

        public long nanoseconds() {
            return now * 1_000_000;
        }

        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }

        public <T> T waitForFuture(Future<T> future, long deadlineNs) {
            throw new UnsupportedOperationException();
        }
    }

    private static final class DueTasks implements Timer {
        private final PriorityQueue<TimerTaskEntry> queue =
            new PriorityQueue<>(Comparator.comparingLong(entry -> entry.expirationMs));

        public void add(TimerTask task) {
            queue.add(new TimerTaskEntry(task, now + task.delayMs));
        }

        public boolean advanceClock(long timeoutMs) {
            return false;
        }

        public int size() {
            return queue.size();
        }

        public void close() {
        }

        void run() {
            while (!queue.isEmpty() && queue.peek().expirationMs <= now) {
                TimerTaskEntry entry = queue.poll();
                if (!entry.cancelled()) {
                    entry.timerTask.run();
                }
            }
        }
    }

    /** Made without its constructor: nobody waits for a fetch here. */
    private static final class NobodyWaits extends ReplicaManager {
        private NobodyWaits() {
            super(null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null,
                null, null, null, null);
        }

        @Override
        public void completeDelayedShareFetchRequest(DelayedShareFetchKey key) {
        }
    }

    /** Made without its constructor: no group has settings of its own. */
    private static final class NoSettings extends GroupConfigManager {
        private NoSettings() {
            super(null, null, null);
        }

        @Override
        public Optional<GroupConfig> groupConfig(String groupId) {
            return Optional.empty();
        }
    }

    private static final class Store implements Persister {
        public CompletableFuture<ReadShareGroupStateResult> readState(ReadShareGroupStateParameters parameters) {
            return CompletableFuture.completedFuture(persisted);
        }

        public CompletableFuture<WriteShareGroupStateResult> writeState(WriteShareGroupStateParameters parameters) {
            PartitionStateBatchData data = parameters.groupTopicPartitionData().topicsData().get(0).partitions().get(0);
            written.append(' ').append(writes.size());
            written.append(',').append(data.startOffset()).append(',').append(data.deliveryCompleteCount());
            for (PersisterStateBatch batch : data.stateBatches()) {
                written.append(',').append(batch.firstOffset()).append(':').append(batch.lastOffset());
                written.append(':').append(batch.deliveryState()).append(':').append(batch.deliveryCount());
            }
            writes.add(new CompletableFuture<>());
            return writes.get(writes.size() - 1);
        }

        public CompletableFuture<InitializeShareGroupStateResult> initializeState(
            InitializeShareGroupStateParameters parameters
        ) {
            throw new UnsupportedOperationException();
        }

        public CompletableFuture<DeleteShareGroupStateResult> deleteState(DeleteShareGroupStateParameters parameters) {
            throw new UnsupportedOperationException();
        }

        public CompletableFuture<ReadShareGroupStateSummaryResult> readSummary(
            ReadShareGroupStateSummaryParameters parameters
        ) {
            throw new UnsupportedOperationException();
        }

        public void stop() {
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> T withoutConstructor(Class<T> type) throws Exception {
        Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return (T) ((sun.misc.Unsafe) field.get(null)).allocateInstance(type);
    }

    private static String begin(Scanner words) throws Exception {
        writes.clear();
        requests.clear();
        long startOffset = words.nextLong();
        int maxInFlight = words.nextInt();
        int maxDeliveries = words.nextInt();
        int lockMs = words.nextInt();
        List<PersisterStateBatch> batches = new ArrayList<>();
        for (int left = words.nextInt(); left > 0; left--) {
            batches.add(new PersisterStateBatch(
                words.nextLong(), words.nextLong(), words.nextByte(), words.nextShort()));
        }
        persisted = new ReadShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(TOPIC, List.of(
            PartitionFactory.newPartitionAllData(0, 7, startOffset, (short) 0, "", batches))))).build();
        tasks = new DueTasks();
        partition = new SharePartition("g", new TopicIdPartition(TOPIC, 0, "t"), 3, maxInFlight, maxDeliveries, lockMs,
            tasks, new Clock(), new Store(), withoutConstructor(NobodyWaits.class),
            withoutConstructor(NoSettings.class), null);
        return outcome(partition.maybeInitialize());
    }

    private static String acquire(Scanner words) {
        String member = words.next();
        ShareAcquireMode mode = ShareAcquireMode.values()[words.nextInt()];
        int batchSize = words.nextInt();
        int maxRecords = words.nextInt();
        long fetchOffset = words.nextLong();
        ByteBuffer buffer = ByteBuffer.allocate(1 << 16);
        for (int left = words.nextInt(); left > 0; left--) {
            long base = words.nextLong();
            long last = words.nextLong();
            MemoryRecordsBuilder builder =
                MemoryRecords.builder(buffer, Compression.NONE, TimestampType.CREATE_TIME, base);
            for (long offset = base; offset <= last; offset++) {
                builder.appendWithOffset(offset, 0L, null, new byte[] {1});
            }
            builder.close();
        }
        buffer.flip();
        FetchPartitionData fetched = new FetchPartitionData(Errors.NONE, Long.MAX_VALUE, 0,
            MemoryRecords.readableRecords(buffer), Optional.empty(), OptionalLong.empty(), Optional.empty(),
            OptionalInt.empty(), false);
        StringBuilder output = new StringBuilder("acquired");
        partition.acquire(member, mode, batchSize, maxRecords, fetchOffset, fetched, FetchIsolation.HIGH_WATERMARK)
            .acquiredRecords()
            .forEach(it -> output.append(' ').append(it.firstOffset()).append(':').append(it.lastOffset()).append(':')
                .append(it.deliveryCount()));
        return output.toString();
    }

    private static String acknowledge(Scanner words) {
        String member = words.next();
        List<ShareAcknowledgementBatch> batches = new ArrayList<>();
        for (int left = words.nextInt(); left > 0; left--) {
            long first = words.nextLong();
            long last = words.nextLong();
            List<Byte> types = new ArrayList<>();
            for (int more = words.nextInt(); more > 0; more--) {
                types.add(words.nextByte());
            }
            batches.add(new ShareAcknowledgementBatch(first, last, types));
        }
        return requested(writes.size(), partition.acknowledge(member, batches));
    }

    private static String requested(int write, CompletableFuture<Void> request) {
        requests.put(write, request);
        return outcome(request) + written;
    }

    private static String answer(int write, short error) {
        writes.get(write).complete(new WriteShareGroupStateResult.Builder().setTopicsData(List.of(new TopicData<>(TOPIC,
            List.of(PartitionFactory.newPartitionErrorData(0, error, ""))))).build());
        return requests.containsKey(write) ? outcome(requests.get(write)) : "None";
    }

    private static String outcome(CompletableFuture<Void> request) {
        if (!request.isDone()) {
            return "pending";
        }
        try {
            request.join();
            return "None";
        } catch (CompletionException failed) {
            return failed.getCause().getClass().getSimpleName();
        }
    }

    /** Start offset, end offset, delivery complete count, next fetch offset, whether more can be acquired, records. */
    private static String state() {
        boolean canAcquire = partition.canAcquireRecords();
        StringBuilder output = new StringBuilder();
        output.append(partition.startOffset()).append(' ').append(partition.endOffset()).append(' ');
        output.append(partition.deliveryCompleteCount()).append(' ').append(partition.nextFetchOffset()).append(' ');
        output.append(canAcquire ? 1 : 0);
        for (InFlightBatch batch : partition.cachedState().values()) {
            long offset = Math.max(batch.firstOffset(), partition.startOffset());
            for (; offset <= batch.lastOffset(); offset++) {
                output.append(' ').append(offset).append(':');
                if (batch.offsetState() == null) {
                    output.append(batch.batchState().id()).append(':').append(batch.batchDeliveryCount()).append(':');
                    output.append(batch.batchMemberId()).append(':').append(batch.batchHasOngoingStateTransition());
                } else {
                    InFlightState record = batch.offsetState().get(offset);
                    output.append(record.state().id()).append(':').append(record.deliveryCount()).append(':');
                    output.append(record.memberId()).append(':').append(record.hasOngoingStateTransition());
                }
            }
        }
        return output.toString();
    }

    private static String follow(Scanner words) throws Exception {
        String command = words.next();
        switch (command) {
            case "begin":
                return begin(words);
            case "acquire":
                return acquire(words);
            case "acknowledge":
                return acknowledge(words);
            case "release":
                return requested(writes.size(), partition.releaseAcquiredRecords(words.next()));
            case "answer":
                return answer(words.nextInt(), words.nextShort());
            case "now":
                now = words.nextLong();
                return "None";
            case "expire":
                tasks.run();
                return "None" + written;
            case "state":
                return state();
            default:
                throw new IllegalArgumentException(command);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            written.setLength(0);
            String output;
            try {
                output = follow(new Scanner(line));
            } catch (RuntimeException broken) {
                output = "broken " + broken;
            }
            System.out.println(output);
            System.out.flush();
        }
    }
}
