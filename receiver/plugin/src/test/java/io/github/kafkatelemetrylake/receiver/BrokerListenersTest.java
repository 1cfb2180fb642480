package io.github.kafkatelemetrylake.receiver;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Test;

class BrokerListenersTest {
    @Test
    void findsThePlaintextListener() {
        assertEquals(Optional.of("localhost:9092"), BrokerListeners.plaintext(Map.of()));
        assertEquals(Optional.of("localhost:9092"), BrokerListeners.plaintext(Map.of("listeners", "PLAINTEXT://:9092")));
        assertEquals(Optional.of("localhost:9"), BrokerListeners.plaintext(Map.of("listeners", "PLAINTEXT://0.0.0.0:9")));
        assertEquals(Optional.of("[fe80::1]:9"), BrokerListeners.plaintext(Map.of("listeners", "PLAINTEXT://[fe80::1]:9")));
        assertEquals(
                Optional.of("b1.example:9092"),
                BrokerListeners.plaintext(Map.of(
                        "listeners", "PLAINTEXT://:9092", "advertised.listeners", "SSL://x:1, PLAINTEXT://b1.example:9092")));
    }

    @Test
    void prefersTheInterBrokerListenerAndSkipsControllers() {
        Map<String, String> config = new HashMap<>(Map.of(
                "listeners", "CONTROLLER://c:1,OUTER://o:2,Inner://i:3,SAFE://s:4",
                "listener.security.protocol.map", "CONTROLLER:PLAINTEXT,OUTER:PLAINTEXT,INNER:PLAINTEXT,SAFE:SASL_SSL",
                "controller.listener.names", "CONTROLLER",
                "inter.broker.listener.name", "INNER"));

        assertEquals(Optional.of("i:3"), BrokerListeners.plaintext(config));
        config.remove("inter.broker.listener.name");
        assertEquals(Optional.of("o:2"), BrokerListeners.plaintext(config));
    }

    @Test
    void findsNoneWhenEveryListenerIsSecured() {
        assertEquals(Optional.empty(), BrokerListeners.plaintext(Map.of("listeners", "SSL://:9093,SASL_SSL://:9094")));
    }
}
