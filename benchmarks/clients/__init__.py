"""Real clients against a real server.

    python -m benchmarks.clients

Every client is installed into a directory of its own, in the versions named here, from the
package registries in use.
"""
