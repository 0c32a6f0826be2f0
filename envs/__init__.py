"""What an agent acts in: adapters, engines, partitions and variants."""
