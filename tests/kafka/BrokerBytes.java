import com.sun.tools.attach.VirtualMachine;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Reads by JMX how many bytes of each topic brokers have got from producers and sent to consumers.
 *
 * <p>Arguments are pairs of broker id and process id. Prints one line for each broker, direction and topic: broker id,
 * BytesInPerSec or BytesOutPerSec, topic, bytes since the start; separated by tabs.
 */
public final class BrokerBytes {
    public static void main(String[] args) throws Exception {
        for (int i = 0; i < args.length; i += 2) {
            String address = VirtualMachine.attach(args[i + 1]).startLocalManagementAgent();
            MBeanServerConnection jmx =
                    JMXConnectorFactory.connect(new JMXServiceURL(address)).getMBeanServerConnection();
            for (String name : new String[] {"BytesInPerSec", "BytesOutPerSec"}) {
                String query = "kafka.server:type=BrokerTopicMetrics,name=" + name + ",topic=*";
                for (ObjectName each : jmx.queryNames(new ObjectName(query), null)) {
                    Object bytes = jmx.getAttribute(each, "Count");
                    System.out.println(String.join("\t", args[i], name, each.getKeyProperty("topic"), bytes.toString()));
                }
            }
        }
        System.exit(0);
    }
}
