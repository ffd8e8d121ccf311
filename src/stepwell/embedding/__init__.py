"""Where features meet rows."""
