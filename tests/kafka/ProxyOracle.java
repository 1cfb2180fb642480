import io.github.kafkatelemetrylake.receiver.subscriptions.Subscription;
import io.github.kafkatelemetrylake.receiver.subscriptions.TelemetryClient;
import io.github.kafkatelemetrylake.receiver.subscriptions.TelemetryProtocol;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsRequestData;
import org.apache.kafka.common.message.GetTelemetrySubscriptionsResponseData;
import org.apache.kafka.common.message.PushTelemetryRequestData;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.GetTelemetrySubscriptionsRequest;
import org.apache.kafka.common.requests.PushTelemetryRequest;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.ClientMetricsManager;
import org.apache.kafka.server.metrics.ClientTelemetryExporterPlugin;

/**
 * Asks the class that answers telemetry in a broker, and the receivers' own protocol, the same random requests.
 *
 * <p>Arguments: number of sequences, seed. Prints how many answers of each kind were equal; ends with 1 at the first that
 * isn't. The ids of two and more metrics may differ: brokers' depend on an order that only that broker knows.
 */
public final class ProxyOracle {
    private static final int MAX_BYTES = 500;
    private static final int STEPS = 60;
    private static final long FORGOTTEN_MS = 60_000;
    private static final int[] INTERVALS = {100, 1_000, 7_000, 15_000};
    private static final String[] METRICS = {"*", "a.", "b.c.", "org.apache.kafka.producer.", "org.apache.kafka.consumer.", "d"};
    private static final String[] MATCHES = {"", "client_id=app-1", "client_software_name=java,client_software_version=4\\..*",
        "client_id=app-.*", "client_id=app", "client_instance_id=.*A.*", "client_software_version=3.*"};
    private static final String[] CLIENT_IDS = {"app-1", "app-2", "", "other"};
    private static final String[] VERSIONS = {"4.3.1", "3.9.1"};

    private final Random random;
    private final Map<String, Integer> counts;
    private final FixedTime time = new FixedTime();
    private final ClientMetricsManager broker =
            new ClientMetricsManager(new ClientTelemetryExporterPlugin(), MAX_BYTES, time.time, new Metrics());
    private final TelemetryProtocol own = new TelemetryProtocol(MAX_BYTES, 100, time::milliseconds);
    private final Map<String, Map<String, String>> subscriptions = new TreeMap<>();
    private final Uuid[] ids = new Uuid[4];
    private final long[] lastAsked = new long[ids.length];
    private final Map<Uuid, int[]> subscriptionIds = new HashMap<>();
    private final List<String> done = new ArrayList<>();

    private ProxyOracle(Random random, Map<String, Integer> counts) {
        this.random = random;
        this.counts = counts;
        for (int i = 0; i < ids.length; i++) {
            ids[i] = new Uuid(random.nextLong(), random.nextLong());
        }
    }

    public static void main(String[] arguments) throws Exception {
        Random random = new Random(Long.parseLong(arguments[1]));
        Map<String, Integer> counts = new TreeMap<>();
        for (int i = 0; i < Integer.parseInt(arguments[0]); i++) {
            ProxyOracle one = new ProxyOracle(random, counts);
            one.run();
            one.broker.close();
        }
        counts.forEach((kind, count) -> System.out.println(kind + " " + count));
        System.exit(0);
    }

    private void run() throws Exception {
        change();
        for (int step = 0; step < STEPS; step++) {
            time.now += pick(new int[] {0, 0, 1, 50, 99, 100, 500, 999, 1_000, 3_500, 7_000, 15_000, 20_000});
            int kind = random.nextInt(10);
            if (kind == 0) {
                change();
            } else if (kind < 4) {
                get(id(), client());
            } else {
                push(random.nextInt(40) == 0 ? Uuid.ONE_UUID : id(), client());
            }
        }
    }

    private void change() {
        String name = "s" + random.nextInt(4);
        Map<String, String> config = new HashMap<>();
        if (random.nextInt(4) > 0) {
            List<String> metrics = new ArrayList<>();
            for (int i = random.nextInt(4); i > 0; i--) {
                metrics.add(METRICS[random.nextInt(METRICS.length)]);
            }
            config.put("metrics", String.join(",", metrics));
            config.put("interval.ms", String.valueOf(pick(INTERVALS)));
            config.put("match", MATCHES[random.nextInt(MATCHES.length)]);
        }
        if (config.equals(subscriptions.getOrDefault(name, Map.of()))) {
            return;
        }
        Properties properties = new Properties();
        properties.putAll(config);
        broker.updateSubscription(name, properties);
        if (config.isEmpty()) {
            subscriptions.remove(name);
        } else {
            subscriptions.put(name, config);
        }
        List<Subscription> all = new ArrayList<>();
        subscriptions.forEach((each, texts) -> all.add(Subscription.ofConfig(each, texts)));
        own.subscribe(all);
        done.add("at " + time.now + ": " + name + " = " + config);
    }

    private void get(Uuid id, String[] client) throws Exception {
        done.add("at " + time.now + ": get " + id + " by " + String.join(" ", client));
        GetTelemetrySubscriptionsResponseData theirs = broker.processGetTelemetrySubscriptionRequest(
                new GetTelemetrySubscriptionsRequest(
                        new GetTelemetrySubscriptionsRequestData().setClientInstanceId(id), (short) 0),
                context(client)).data();
        TelemetryProtocol.SubscriptionsAnswer ours = own.get(id, new TelemetryClient(client[0], client[1], client[2]));
        same("get", Errors.forCode(theirs.errorCode()), ours.error);
        if (ours.error == Errors.NONE) {
            same("metrics", new HashSet<>(theirs.requestedMetrics()), new HashSet<>(ours.requestedMetrics));
            same("interval", theirs.pushIntervalMs(), ours.pushIntervalMs);
            same("instance", theirs.clientInstanceId(), ours.clientInstanceId);
            same("bytes", theirs.telemetryMaxBytes(), ours.telemetryMaxBytes);
            same("codecs", theirs.acceptedCompressionTypes(), TelemetryProtocol.ACCEPTED_COMPRESSION_TYPES);
            if (ours.requestedMetrics.size() < 2) {
                same("id", theirs.subscriptionId(), ours.subscriptionId);
            } else {
                count(theirs.subscriptionId() == ours.subscriptionId ? "id of several equal" : "id of several by order");
            }
            subscriptionIds.put(id, new int[] {theirs.subscriptionId(), ours.subscriptionId});
        }
    }

    private void push(Uuid id, String[] client) throws Exception {
        int[] known = subscriptionIds.getOrDefault(id, new int[] {7, 7});
        int wrong = random.nextInt(8) == 0 ? 1 : 0;
        boolean terminating = random.nextInt(10) == 0;
        int size = pick(new int[] {0, 0, 10, MAX_BYTES, MAX_BYTES + 1});
        int codec = size == 0 || size > MAX_BYTES ? pick(new int[] {-1, 0, 1, 2, 3, 4, 4, 4, 5}) : 0;
        done.add("at " + time.now + ": push " + id + " wrong " + wrong + " terminating " + terminating + " codec " + codec
                + " of " + size);
        PushTelemetryRequestData request = new PushTelemetryRequestData()
                .setClientInstanceId(id)
                .setSubscriptionId(known[0] + wrong)
                .setTerminating(terminating)
                .setCompressionType((byte) codec)
                .setMetrics(ByteBuffer.allocate(size));
        Errors theirs = Errors.forCode(
                broker.processPushTelemetryRequest(new PushTelemetryRequest(request, (short) 0), context(client)).data().errorCode());
        Errors ours = own.push(id, new TelemetryClient(client[0], client[1], client[2]), known[1] + wrong, terminating, codec, size)
                .error;
        same("push", theirs, ours);
    }

    private void same(String kind, Object theirs, Object ours) {
        if (!theirs.equals(ours)) {
            System.out.println(kind + ": the broker says " + theirs + ", the receiver " + ours);
            done.forEach(System.out::println);
            System.exit(1);
        }
        count(kind + (theirs instanceof Errors ? " " + theirs : " equal"));
    }

    private void count(String kind) {
        counts.merge(kind, 1, Integer::sum);
    }

    private int pick(int[] values) {
        return values[random.nextInt(values.length)];
    }

    /** A broker forgets instances by the real clock: one that was silent for so long that it would be is replaced. */
    private Uuid id() {
        int index = random.nextInt(ids.length);
        if (time.now - lastAsked[index] >= FORGOTTEN_MS) {
            ids[index] = new Uuid(random.nextLong(), random.nextLong());
        }
        lastAsked[index] = time.now;
        return ids[index];
    }

    private String[] client() {
        return new String[] {CLIENT_IDS[random.nextInt(CLIENT_IDS.length)], random.nextBoolean() ? "java" : "rust",
            VERSIONS[random.nextInt(VERSIONS.length)]};
    }

    /** A clock that stands still between steps. */
    private static final class FixedTime implements InvocationHandler {
        long now = 1_700_000_000_000L;
        final Time time = (Time) Proxy.newProxyInstance(
                ProxyOracle.class.getClassLoader(), new Class<?>[] {Time.class}, this);

        @Override
        public Object invoke(Object proxy, Method method, Object[] arguments) {
            if (method.getName().equals("milliseconds") || method.getName().equals("hiResClockMs")) {
                return now;
            }
            throw new UnsupportedOperationException(method.getName());
        }

        long milliseconds() {
            return now;
        }
    }

    private static RequestContext context(String[] client) throws Exception {
        return new RequestContext(
                new RequestHeader(ApiKeys.GET_TELEMETRY_SUBSCRIPTIONS, (short) 0, client[0], 1),
                "connection",
                InetAddress.getLoopbackAddress(),
                Optional.of(4000),
                KafkaPrincipal.ANONYMOUS,
                new ListenerName("PLAINTEXT"),
                SecurityProtocol.PLAINTEXT,
                new ClientInformation(client[1], client[2]),
                false,
                Optional.empty());
    }
}
