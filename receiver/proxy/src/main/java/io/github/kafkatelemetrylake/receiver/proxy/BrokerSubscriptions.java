package io.github.kafkatelemetrylake.receiver.proxy;

import io.github.kafkatelemetrylake.receiver.subscriptions.Subscription;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.config.ConfigResource;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Subscriptions in the brokers' CLIENT_METRICS resources, which Apache Kafka keeps also without a telemetry plugin. */
final class BrokerSubscriptions implements SubscriptionSource.Reader {
    private static final Logger LOG = LoggerFactory.getLogger(BrokerSubscriptions.class);
    private static final int TIMEOUT_MS = 10_000;

    private final Map<String, Object> config;
    private Admin admin;

    BrokerSubscriptions(Map<String, Object> clientConfig) {
        config = new HashMap<>(clientConfig);
        config.put("client.id", "client-telemetry-subscriptions");
        config.put("enable.metrics.push", "false");
        config.put("default.api.timeout.ms", String.valueOf(TIMEOUT_MS));
        config.put("request.timeout.ms", String.valueOf(TIMEOUT_MS / 2));
    }

    /** Takes at most twice ten seconds. A resource that can't be read here is left out, with a line in the log. */
    @Override
    public List<Subscription> read() throws Exception {
        if (admin == null) {
            admin = Admin.create(config);
        }
        List<ConfigResource> resources = new ArrayList<>();
        admin.listClientMetricsResources().all().get(TIMEOUT_MS, TimeUnit.MILLISECONDS).forEach(
                each -> resources.add(new ConfigResource(ConfigResource.Type.CLIENT_METRICS, each.name())));
        List<Subscription> all = new ArrayList<>();
        if (resources.isEmpty()) {
            return all;
        }
        Map<ConfigResource, Config> configs =
                admin.describeConfigs(resources).all().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        for (ConfigResource each : resources) {
            Map<String, String> texts = new HashMap<>();
            for (ConfigEntry entry : configs.get(each).entries()) {
                if (entry.value() != null) {
                    texts.put(entry.name(), entry.value());
                }
            }
            try {
                all.add(Subscription.ofConfig(each.name(), texts));
            } catch (IllegalArgumentException e) {
                LOG.warn("A subscription of the brokers is left out: {}", e.getMessage());
            }
        }
        return all;
    }

    @Override
    public void close() {
        if (admin != null) {
            admin.close();
        }
    }
}
