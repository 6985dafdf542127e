"""What people import: Grafana's boards, Prometheus' rules and alerts, and a stack to start with; all made from code."""
