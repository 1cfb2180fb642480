"""The operator's state files: chains, manifests, snapshots."""
