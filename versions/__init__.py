"""The seams against every vLLM release that has the push connector: ``python -m versions``.

Every release is read: its wheel is fetched, the connector's files taken out and parsed, and the seam tables asked
what they would say of classes with these methods and parameters. That finds what was renamed or is not there yet;
it cannot find what means something else by the same name. So those that install here are run as well: ``runs`` has
the list of tests, ``environments`` what they are run in.
"""
