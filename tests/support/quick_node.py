"""Nodes that start in half the time: their JVMs compile with C1 alone. For tests that compare no times."""

JAVA_OPTS = "-XX:TieredStopAtLevel=1"
NODE_TABLE = f'[node]\nparams = {{ java_opts = "{JAVA_OPTS}" }}\n'  # of a plan
