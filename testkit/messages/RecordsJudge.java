import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.ByteBufferOutputStream;

/**
 * Kafka's own record classes behind stdin and stdout: a line is a question, a line is the answer.
 *
 * <pre>
 * build codec timestampType appendTime producerId epoch sequence transactional control baseOffset leaderEpoch horizon record*
 * empty producerId epoch sequence baseOffset lastOffset leaderEpoch timestampType timestamp transactional control
 * read batch                 -> the header's fields, then the records; or ! and the exception
 * end commit|abort ...       -> a transaction's end;  leader|header|footer ...  -> a Raft control batch
 * </pre>
 *
 * A record is offset,timestamp,key,value followed by ,name,value for each header; bytes are in hex, "-" is null.
 */
public final class RecordsJudge {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (Exception exception) {
                answer = "! " + exception.toString().replace('\n', ' ');
            }
            out.println(answer);
            out.flush();
        }
    }

    private static String answer(String[] words) {
        switch (words[0]) {
            case "build":
                return build(words);
            case "empty":
                return empty(words);
            case "read":
                return read(HEX.parseHex(words[1]));
            case "end":
                return hex(MemoryRecords.withEndTransactionMarker(Long.parseLong(words[2]), Long.parseLong(words[3]),
                    Integer.parseInt(words[4]), Long.parseLong(words[5]), Short.parseShort(words[6]),
                    new EndTransactionMarker(ControlRecordType.valueOf(words[1]), Integer.parseInt(words[7]))).buffer());
            case "leader":
                return hex(MemoryRecords.withLeaderChangeMessage(Long.parseLong(words[1]), Long.parseLong(words[2]),
                    Integer.parseInt(words[3]), ByteBuffer.allocate(512),
                    new LeaderChangeMessage().setLeaderId(Integer.parseInt(words[4]))).buffer());
            case "header":
                return hex(MemoryRecords.withSnapshotHeaderRecord(Long.parseLong(words[1]), Long.parseLong(words[2]),
                    Integer.parseInt(words[3]), ByteBuffer.allocate(512),
                    new SnapshotHeaderRecord().setLastContainedLogTimestamp(Long.parseLong(words[4]))).buffer());
            case "footer":
                return hex(MemoryRecords.withSnapshotFooterRecord(Long.parseLong(words[1]), Long.parseLong(words[2]),
                    Integer.parseInt(words[3]), ByteBuffer.allocate(512), new SnapshotFooterRecord()).buffer());
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String build(String[] words) {
        CompressionType codec = CompressionType.forId(Integer.parseInt(words[1]));
        long horizon = Long.parseLong(words[11]);
        ByteBufferOutputStream buffer = new ByteBufferOutputStream(4096);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(buffer, RecordBatch.MAGIC_VALUE_V2,
            Compression.of(codec).build(), timestampType(words[2]), Long.parseLong(words[9]),
            Long.parseLong(words[3]), Long.parseLong(words[4]), Short.parseShort(words[5]), Integer.parseInt(words[6]),
            words[7].equals("1"), words[8].equals("1"), Integer.parseInt(words[10]), Integer.MAX_VALUE, horizon);
        for (int i = 12; i < words.length; i++) {
            String[] fields = words[i].split(",", -1);
            List<Header> headers = new ArrayList<>();
            for (int h = 4; h < fields.length; h += 2) {
                headers.add(new RecordHeader(new String(bytes(fields[h]), StandardCharsets.UTF_8), bytes(fields[h + 1])));
            }
            builder.appendWithOffset(Long.parseLong(fields[0]), Long.parseLong(fields[1]), bytes(fields[2]),
                bytes(fields[3]), headers.toArray(new Header[0]));
        }
        return hex(builder.build().buffer());
    }

    private static String empty(String[] words) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(buffer, RecordBatch.MAGIC_VALUE_V2, Long.parseLong(words[1]),
            Short.parseShort(words[2]), Integer.parseInt(words[3]), Long.parseLong(words[4]), Long.parseLong(words[5]),
            Integer.parseInt(words[6]), timestampType(words[7]), Long.parseLong(words[8]),
            words[9].equals("1"), words[10].equals("1"));
        buffer.flip();
        return hex(buffer);
    }

    private static String read(byte[] bytes) {
        StringBuilder answer = new StringBuilder();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            answer.append(batch.baseOffset()).append(',').append(batch.lastOffset()).append(',')
                .append(batch.maxTimestamp()).append(',').append(batch.lastSequence()).append(',')
                .append(batch.compressionType().id).append(',').append(batch.timestampType() == TimestampType.CREATE_TIME ? 0 : 1).append(',')
                .append(batch.isTransactional() ? 1 : 0).append(',').append(batch.isControlBatch() ? 1 : 0).append(',')
                .append(batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : -1);
            for (Record record : batch) {
                answer.append(' ').append(record.offset()).append(',').append(record.timestamp()).append(',')
                    .append(hex(record.key())).append(',').append(hex(record.value()));
                for (Header header : record.headers()) {
                    answer.append(',').append(HEX.formatHex(header.key().getBytes(StandardCharsets.UTF_8)))
                        .append(',').append(header.value() == null ? "-" : HEX.formatHex(header.value()));
                }
            }
        }
        return answer.toString();
    }

    private static TimestampType timestampType(String word) {
        return word.equals("0") ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME;
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return "-";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HEX.formatHex(bytes);
    }
}
