package io.github.kafkatelemetrylake.receiver;

/** Counts of quota samples for a receiver's status and JMX. */
interface QuotaCounts {
    /** Those of a receiver that samples no quotas. */
    QuotaCounts NONE = new QuotaCounts() {
        @Override
        public int sensors() {
            return 0;
        }

        @Override
        public long landed() {
            return 0;
        }

        @Override
        public long lost() {
            return 0;
        }

        @Override
        public void close() {}
    };

    /** Number of quota sensors: one per entity and quota type. */
    int sensors();

    /** Samples since the start that the topic has acknowledged. */
    long landed();

    /** Samples taken since the start that did not land. */
    long lost();

    /** Ends the sampling. */
    void close();
}
