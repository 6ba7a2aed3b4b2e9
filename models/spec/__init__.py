"""What is asked: the workload, the cluster, what may be chosen, and the answer's plain values."""
