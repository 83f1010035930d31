import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * Kafka's own message classes as the judge of ours. Each line of input is
 *
 *     CLASS VERSION HEX JSON      a message as we write it, and its fields as Kafka's JSON converters write them
 *
 * and is answered by one line: "! " and what went wrong, or
 *
 *     HEX HEX EQUAL JSON          Kafka's bytes for that JSON; Kafka's bytes for what it read from our bytes; whether
 *                                 Kafka calls the two equal; what it read as JSON
 *
 * The line "apis" is answered by what ApiKeys has of each API that still has versions, for clients or not:
 *
 *     KEY,FOR_CLIENTS,VERSION:REQUEST_HEADER_VERSION:RESPONSE_HEADER_VERSION,...
 */
public class MessagesJudge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();

    /** The class of a message, and what its converter offers. */
    private record Kind(Class<?> message, Method fromJson, Method toJson) {
        static Kind of(String name) throws ReflectiveOperationException {
            Class<?> message = Class.forName(name);
            Class<?> converter = Class.forName(name + "JsonConverter");
            return new Kind(
                message,
                converter.getMethod("read", JsonNode.class, short.class),
                converter.getMethod("write", message, short.class, boolean.class));
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Map<String, Kind> kinds = new HashMap<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                if (line.equals("apis")) {
                    output.println(apis());
                    output.flush();
                    continue;
                }
                String[] words = line.split(" ", 4);
                Kind kind = kinds.get(words[0]);
                if (kind == null) {
                    kind = Kind.of(words[0]);
                    kinds.put(words[0], kind);
                }
                answer = judge(kind, Short.parseShort(words[1]), HEX.parseHex(words[2]), JSON.readTree(words[3]));
            } catch (InvocationTargetException exception) {
                answer = "! " + exception.getCause();
            } catch (Exception exception) {
                answer = "! " + exception;
            }
            output.println(answer.replace('\n', ' '));
            output.flush();
        }
    }

    private static String judge(Kind kind, short version, byte[] bytes, JsonNode json) throws Exception {
        Message meant = (Message) kind.fromJson.invoke(null, json, version);
        Message read = (Message) kind.message.getConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        read.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            return "! " + buffer.remaining() + " bytes are left over";
        }
        JsonNode back = (JsonNode) kind.toJson.invoke(null, read, version, true);
        return hex(meant, version) + " " + hex(read, version) + " " + read.equals(meant) + " " + JSON.writeValueAsString(back);
    }

    private static String apis() {
        StringJoiner apis = new StringJoiner(" ");
        for (ApiKeys key : ApiKeys.values()) {
            if (key.hasValidVersion()) {
                StringJoiner api = new StringJoiner(",");
                api.add(Short.toString(key.id)).add(Boolean.toString(ApiKeys.clientApis().contains(key)));
                for (short v = key.oldestVersion(); v <= key.latestVersion(true); v++) {
                    api.add(v + ":" + key.requestHeaderVersion(v) + ":" + key.responseHeaderVersion(v));
                }
                apis.add(api.toString());
            }
        }
        return apis.toString();
    }

    private static String hex(Message message, short version) {
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HEX.formatHex(bytes);
    }
}
