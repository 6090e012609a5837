"""The pages of the service and the HTTP interface behind them. Needs the extra `study`."""
