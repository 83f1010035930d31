import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import kafka.server.KafkaConfig;

/**
 * Whether Apache Kafka would start with a configuration, as far as the class of its configuration decides it.
 *
 * Each line of the standard input has settings as NAME=VALUE, with tabs between. For each the output has a line: OK, or
 * what is wrong. First come the names of all settings, in one line.
 */
public final class StartOracle {
    public static void main(String[] arguments) throws Exception {
        System.out.println(String.join(" ", KafkaConfig.configDef().names()));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            Properties settings = new Properties();
            for (String setting : line.split("\t")) {
                int equals = setting.indexOf('=');
                settings.setProperty(setting.substring(0, equals), setting.substring(equals + 1));
            }
            System.out.println(answer(settings));
        }
    }

    private static String answer(Properties settings) {
        try {
            KafkaConfig.fromProps(settings, false);
            return "OK";
        } catch (RuntimeException refusal) {
            return String.valueOf(refusal.getMessage()).replace('\n', ' ');
        }
    }
}
