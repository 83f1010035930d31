"""The controller's rules: pure functions from the cluster's state and a request to records and a response.

    deciding.py                       the state, a `Decision`, and limits
    brokers.py                        registration, fencing, unfencing, controlled shutdown, a failed log dir
    producer_id_blocks.py             blocks of producer ids
    feature_updates.py                the levels of features
    partitions/elections.py           the leader of one partition: out of its ISR, or else its eligible replicas,
                                      unless an unclean election is allowed
    partitions/eligible_replicas.py   the replicas that are eligible to lead (KIP-966), and the effects of the feature
                                      and of min.insync.replicas on them
    partitions/isr_changes.py         the ISR that a leader proposes
    partitions/partition_changes.py   the record of one partition's next ISR, replicas and leader; completes a
                                      reassignment
    partitions/reassignments.py       requests of an operator, as in leader_elections.py
    partitions/placement.py           the brokers of new replicas
    partitions/states.py              no rule: the states of partitions and replicas, and their transitions
    topics/, configs/                 topics, and configurations
    access/                           users, delegation tokens, ACLs, quotas

`kwire.metadata.service` carries out their decisions.
"""
