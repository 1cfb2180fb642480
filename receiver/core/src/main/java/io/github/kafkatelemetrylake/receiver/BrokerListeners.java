package io.github.kafkatelemetrylake.receiver;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Finds the address at which the plugin's producer reaches its own broker, from the broker's listener configuration. */
final class BrokerListeners {
    private static final Pattern LISTENER = Pattern.compile("([^:]+)://\\[?([^/]*?)]?:(\\d+)");

    private BrokerListeners() {}

    /**
     * The address of the broker's plaintext listener, preferably the inter-broker one.
     *
     * @param config the broker's properties; the default listeners are {@code PLAINTEXT://:9092}
     * @return {@code host:port}; empty when every listener is encrypted or authenticated
     */
    static Optional<String> plaintext(Map<String, ?> config) {
        String advertised = text(config, "advertised.listeners", "");
        String listeners = advertised.isBlank() ? text(config, "listeners", "PLAINTEXT://:9092") : advertised;
        Map<String, String> protocols = protocols(text(config, "listener.security.protocol.map", ""));
        Set<String> controllers = new HashSet<>(names(text(config, "controller.listener.names", "")));
        String interBroker = text(config, "inter.broker.listener.name", "").toUpperCase(Locale.ROOT);
        String address = null;
        for (String listener : listeners.split(",")) {
            Matcher parts = LISTENER.matcher(listener.trim());
            if (!parts.matches()) {
                continue;
            }
            String name = parts.group(1).toUpperCase(Locale.ROOT);
            if (controllers.contains(name) || !"PLAINTEXT".equals(protocols.getOrDefault(name, name))) {
                continue;
            }
            if (address == null || name.equals(interBroker)) {
                address = address(parts.group(2), parts.group(3));
            }
        }
        return Optional.ofNullable(address);
    }

    /** A listener on all addresses is reached over loopback. */
    private static String address(String host, String port) {
        boolean any = host.isEmpty() || host.equals("0.0.0.0") || host.equals("::");
        String reachable = any ? "localhost" : host.contains(":") ? "[" + host + "]" : host;
        return reachable + ":" + port;
    }

    private static Map<String, String> protocols(String map) {
        Map<String, String> protocols = new HashMap<>();
        for (String entry : names(map)) {
            int colon = entry.lastIndexOf(':');
            if (colon > 0) {
                protocols.put(entry.substring(0, colon), entry.substring(colon + 1));
            }
        }
        return protocols;
    }

    private static List<String> names(String list) {
        return Arrays.asList(list.toUpperCase(Locale.ROOT).trim().split("\\s*,\\s*"));
    }

    private static String text(Map<String, ?> config, String key, String otherwise) {
        return LanderSettings.brokerText(config, key).orElse(otherwise);
    }
}
