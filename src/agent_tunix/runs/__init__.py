"""A run's directory, configuration, reward and reports."""
