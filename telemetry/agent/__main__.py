"""``python -m pushscope.telemetry.agent``: the agent without the other commands, as the connector starts it."""

from pushscope.telemetry.agent.command import main

main()
