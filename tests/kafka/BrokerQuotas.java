import com.sun.tools.attach.VirtualMachine;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.management.Attribute;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Reads the client quota MBeans of brokers by JMX until it is killed, ten times a second: the truth of quota samples.
 *
 * <p>Arguments are pairs of broker id and process id. Prints one line for each MBean and read: broker id, time in
 * milliseconds, type, user, client id, rate, throttle time; separated by tabs.
 */
public final class BrokerQuotas {
    private static final String[] TYPES = {"Produce", "Fetch", "Request"};

    public static void main(String[] args) throws Exception {
        Map<String, MBeanServerConnection> brokers = new LinkedHashMap<>();
        for (int i = 0; i < args.length; i += 2) {
            String address = VirtualMachine.attach(args[i + 1]).startLocalManagementAgent();
            brokers.put(args[i], JMXConnectorFactory.connect(new JMXServiceURL(address)).getMBeanServerConnection());
        }
        while (true) {
            for (Map.Entry<String, MBeanServerConnection> broker : brokers.entrySet()) {
                for (String type : TYPES) {
                    read(broker.getKey(), broker.getValue(), type);
                }
            }
            System.out.flush();
            Thread.sleep(100);
        }
    }

    private static void read(String broker, MBeanServerConnection jmx, String type) throws Exception {
        String rate = type.equals("Request") ? "request-time" : "byte-rate";
        for (ObjectName name : jmx.queryNames(new ObjectName("kafka.server:type=" + type + ",*"), null)) {
            String user = name.getKeyProperty("user");
            String clientId = name.getKeyProperty("client-id");
            if (user == null && clientId == null) {
                continue;  // queue-size, exempt-request-time
            }
            Map<String, Object> values = new LinkedHashMap<>();
            long before = System.currentTimeMillis();
            for (Attribute each : jmx.getAttributes(name, new String[] {rate, "throttle-time"}).asList()) {
                values.put(each.getName(), each.getValue());
            }
            long time = (before + System.currentTimeMillis()) / 2;
            System.out.println(String.join("\t", broker, String.valueOf(time), type.toLowerCase(),
                    user == null ? "" : user, clientId == null ? "" : clientId,
                    String.valueOf(values.get(rate)), String.valueOf(values.get("throttle-time"))));
        }
    }
}
