import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools one after the other in one process, since the start of a Java process takes longer than most of them.
 *
 * A request is a line: the main class, the standard input and the arguments, each in base64, with spaces between. The answer is a
 * line: the exit code, the standard output and the standard error.
 */
public final class ToolHost {
    /** Thrown where a tool ends the process. A tool may catch it, as it catches everything, and end the process again. */
    private static final class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    private static Integer firstCode;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure(ToolHost::end);
        Exit.setHaltProcedure(ToolHost::end);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = requests.readLine()) != null; ) {
            String[] parts = Arrays.stream(line.split(" ", -1)).map(ToolHost::decoded).toArray(String[]::new);
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            ByteArrayOutputStream err = new ByteArrayOutputStream();
            System.setIn(new ByteArrayInputStream(parts[1].getBytes(StandardCharsets.UTF_8)));
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            int code = run(parts[0], Arrays.copyOfRange(parts, 2, parts.length));
            System.out.flush();
            System.err.flush();
            answers.println(code + " " + encoded(out) + " " + encoded(err));
            answers.flush();
        }
    }

    private static int run(String mainClass, String[] arguments) throws Exception {
        firstCode = null;
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return firstCode == null ? 0 : firstCode;
        } catch (InvocationTargetException wrapped) {
            if (wrapped.getCause() instanceof Ended) {
                return firstCode;
            }
            wrapped.getCause().printStackTrace();
            return 1;
        }
    }

    private static void end(int code, String message) {
        if (firstCode == null) {
            firstCode = code;
        }
        throw new Ended();
    }

    private static String decoded(String part) {
        return new String(Base64.getDecoder().decode(part), StandardCharsets.UTF_8);
    }

    private static String encoded(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
