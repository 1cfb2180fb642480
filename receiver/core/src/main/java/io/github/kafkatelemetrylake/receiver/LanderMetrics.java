package io.github.kafkatelemetrylake.receiver;

import java.lang.management.ManagementFactory;
import java.util.LinkedHashMap;
import java.util.Map;
import javax.management.JMException;
import javax.management.ObjectName;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Exposes ledger and lander in JMX. */
final class LanderMetrics implements ClientTelemetryLanderMXBean {
    static final String NAME = "io.github.kafkatelemetrylake:type=ClientTelemetryLander";
    private static final Logger LOG = LoggerFactory.getLogger(LanderMetrics.class);

    private final String name;
    private final Ledger ledger;
    private final Lander lander;
    private final QuotaCounts quotas;
    private boolean registered;

    LanderMetrics(String name, Ledger ledger, Lander lander, QuotaCounts quotas) {
        this.name = name;
        this.ledger = ledger;
        this.lander = lander;
        this.quotas = quotas;
    }

    void register() {
        try {
            ManagementFactory.getPlatformMBeanServer().registerMBean(this, new ObjectName(name));
            registered = true;
        } catch (JMException e) {
            LOG.warn("No JMX counters: {} can't be registered. Is another receiver of this name in the process? Then each push may"
                    + " land twice", name, e);
        }
    }

    void unregister() {
        if (registered) {
            try {
                ManagementFactory.getPlatformMBeanServer().unregisterMBean(new ObjectName(name));
            } catch (JMException e) {
                LOG.warn("{} stays in JMX", name, e);
            }
        }
    }

    @Override
    public long getReceived() {
        return ledger.snapshot().received;
    }

    @Override
    public long getLanded() {
        return ledger.snapshot().landed;
    }

    @Override
    public long getDroppedTotal() {
        return ledger.snapshot().droppedTotal();
    }

    @Override
    public Map<String, Long> getDropped() {
        Map<String, Long> dropped = new LinkedHashMap<>();
        ledger.snapshot().dropped.forEach((reason, count) -> dropped.put(reason.toString(), count));
        return dropped;
    }

    @Override
    public long getQueueDepth() {
        return ledger.snapshot().queueDepth();
    }

    @Override
    public long getQueueBytes() {
        return lander.queuedBytes();
    }

    @Override
    public double getRequestThreadMicrosAvg() {
        return ledger.requestMicrosAvg();
    }

    @Override
    public double getRequestThreadMicrosMax() {
        return ledger.requestMicrosMax();
    }

    @Override
    public int getQuotaSensors() {
        return quotas.sensors();
    }

    @Override
    public long getQuotaSamplesLanded() {
        return quotas.landed();
    }

    @Override
    public long getQuotaSamplesLost() {
        return quotas.lost();
    }
}
