import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * What Kafka's own StandardAuthorizer decides.
 *
 * The standard input has lines of a word and its fields, with tabs between:
 *
 *   authorizer  SUPER_USERS  ALLOWS_IF_NO_ACL                                    a new authorizer, without ACLs
 *   acl  RESOURCE_TYPE  NAME  PATTERN_TYPE  PRINCIPAL  HOST  OPERATION  PERMISSION
 *   asks  PRINCIPAL_TYPE  PRINCIPAL_NAME  HOST  OPERATION  RESOURCE_TYPE  NAME   about one resource
 *   asks  PRINCIPAL_TYPE  PRINCIPAL_NAME  HOST  OPERATION  RESOURCE_TYPE         about any of the type
 *
 * Types, operations and permissions are numbers. For each "asks" the output has a line: ALLOWED or DENIED.
 */
public final class AuthorizerOracle {
    private record RequestContext(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override public String listenerName() { return "PLAINTEXT"; }
        @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        @Override public int requestType() { return 0; }
        @Override public int requestVersion() { return 0; }
        @Override public String clientId() { return ""; }
        @Override public int correlationId() { return 0; }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        StandardAuthorizer authorizer = null;
        for (String line; (line = lines.readLine()) != null; ) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "authorizer" -> authorizer = begin(fields[1], fields[2]);
                case "acl" -> authorizer.addAcl(Uuid.randomUuid(), acl(fields));
                default -> System.out.println(answer(authorizer, fields));
            }
        }
    }

    private static StandardAuthorizer begin(String superUsers, String allowsIfNoAcl) {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            "node.id", "1", "super.users", superUsers, "allow.everyone.if.no.acl.found", allowsIfNoAcl));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        authorizer.completeInitialLoad();
        return authorizer;
    }

    private static StandardAcl acl(String[] fields) {
        return new StandardAcl(
            ResourceType.fromCode(Byte.parseByte(fields[1])), fields[2], PatternType.fromCode(Byte.parseByte(fields[3])),
            fields[4], fields[5],
            AclOperation.fromCode(Byte.parseByte(fields[6])), AclPermissionType.fromCode(Byte.parseByte(fields[7])));
    }

    private static AuthorizationResult answer(StandardAuthorizer authorizer, String[] fields) throws UnknownHostException {
        RequestContext context = new RequestContext(new KafkaPrincipal(fields[1], fields[2]), InetAddress.getByName(fields[3]));
        AclOperation operation = AclOperation.fromCode(Byte.parseByte(fields[4]));
        ResourceType type = ResourceType.fromCode(Byte.parseByte(fields[5]));
        if (fields.length == 6) {
            return authorizer.authorizeByResourceType(context, operation, type);
        }
        ResourcePattern resource = new ResourcePattern(type, fields[6], PatternType.LITERAL);
        return authorizer.authorize(context, List.of(new Action(operation, resource, 1, false, false))).get(0);
    }
}
