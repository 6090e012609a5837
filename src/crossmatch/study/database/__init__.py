"""The campaign's database: schema, queries, transactions, event log and its verification."""
