package io.github.kafkatelemetrylake.receiver.proxy;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.dataformat.yaml.YAMLFactory;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class FilterSettingsTest {
    private static final ObjectMapper YAML = new ObjectMapper(new YAMLFactory());

    private static FilterSettings read(String yaml) throws Exception {
        return new FilterSettings(YAML.readValue(yaml, FilterConfig.class));
    }

    @Test
    void defaults() throws Exception {
        FilterSettings settings = read("{subscriptions: s.yml, landing: {bootstrap.servers: 'h:1'}}");

        assertEquals("proxy", settings.name);
        assertTrue(settings.requireSasl);
        assertEquals(Path.of("s.yml"), settings.subscriptionsFile);
        assertEquals(5_000, settings.subscriptionsRefreshMs);
        assertEquals(1024 * 1024, settings.telemetryMaxBytes);
        assertEquals(Map.of("bootstrap.servers", "h:1"), settings.adminConfig);
    }

    @Test
    void subscriptionsOfBrokersAreAskedForAsTheProducerLogsIn() throws Exception {
        FilterSettings settings = read("{subscriptions: brokers, requireSasl: false, landing: {bootstrap.servers: 'h:1',"
                + " producer.security.protocol: SSL, producer.linger.ms: 7, topic: t}}");

        assertFalse(settings.requireSasl);
        assertNull(settings.subscriptionsFile);
        assertEquals(Map.of("bootstrap.servers", "h:1", "security.protocol", "SSL"), settings.adminConfig);
    }

    @ParameterizedTest
    @CsvSource(delimiter = '|', quoteCharacter = '"', value = {
        "{} | the filter has no config; it needs subscriptions and landing",
        "{subscriptions: 7, lending: {}} | lending: is no setting (allowed: landing, name, requireSasl, subscriptions,"
            + " subscriptionsRefreshMs, telemetryMaxBytes)",
        "{landing: {bootstrap.servers: 'h:1'}} | subscriptions: is needed (allowed: a path of a YAML file, or brokers)",
        "{subscriptions: s, requireSasl: 'yes'} | requireSasl: got yes (allowed: true, false)",
        "{subscriptions: s, telemetryMaxBytes: 0} | telemetryMaxBytes: got 0 (allowed: 1 to 536870912)",
        "{subscriptions: s, landing: {topic: t}} | landing: is needed (allowed: bootstrap.servers and other settings of the"
            + " lander, without prefix)",
        "{subscriptions: s, landing: {bootstrap.servers: 'h:1', topic: a b}} | landing: topic=a b is not allowed (allowed: string"
            + " 1 to 249 of the characters a-z A-Z 0-9 . _ -)",
        "{subscriptions: s, landing: {bootstrap.servers: 'h:1', producer.acks: 1}} | landing: producer.acks=1 is not allowed"
            + " (allowed: all)",
        "{subscriptions: s, landing: {bootstrap.servers: 'h:1', quotas.interval.ms: 500}} | landing: quotas.interval.ms is for"
            + " brokers, whose quotas a proxy doesn't see (allowed: the lander's other settings)",
    })
    void whatIsWrongIsSaidInOneLine(String yaml, String message) {
        assertEquals(message, assertThrows(IllegalArgumentException.class, () -> read(yaml)).getMessage());
    }
}
