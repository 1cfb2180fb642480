import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.config.Configuration;
import io.kroxylicious.proxy.internal.config.Features;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** Runs Kroxylicious with the configuration in a file; its own launcher is not in Maven Central. */
public final class KroxyliciousProxy {
    public static void main(String[] arguments) throws Exception {
        ConfigParser parser = new ConfigParser();
        Configuration configuration;
        try (InputStream file = Files.newInputStream(Path.of(arguments[0]))) {
            configuration = parser.parseConfiguration(file);
        }
        try (KafkaProxy proxy = new KafkaProxy(parser, configuration, Features.defaultFeatures())) {
            proxy.startup();
            proxy.block();
        }
    }
}
