"""What ranks did, and when: a record of each rank, put on a cluster's clock; and a ledger of what each held."""
