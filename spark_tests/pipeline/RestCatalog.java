import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * A REST catalog of Iceberg's own: its adapter in front of a catalog in one SQLite file.
 *
 * Arguments: the address and port to listen on, the file, and the folder of the tables. Ends when standard input does.
 */
public final class RestCatalog {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = Map.of(
            "type", "jdbc",
            "uri", "jdbc:sqlite:" + arguments[2],
            "jdbc.schema-version", "V1",
            "warehouse", arguments[3]);
        Catalog tables = CatalogUtil.buildIcebergCatalog("behind", properties, new Configuration());
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(tables))), "/*");
        Server server = new Server();
        ServerConnector connector = new ServerConnector(server);
        connector.setHost(arguments[0]);
        connector.setPort(Integer.parseInt(arguments[1]));
        server.addConnector(connector);
        server.setHandler(context);
        server.start();
        while (System.in.read() >= 0) {
            // Whoever started it writes nothing, and closes.
        }
        server.stop();
    }
}
