"""The contenders: one small file for each queue, all speaking the protocol of `bench.contenders.protocol`."""
