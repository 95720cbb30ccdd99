"""User's trees (`tare.tree`), laid out on this machine.

`merged` lays one out and is what environments use; `images` has a root of the user's own, `copied`
what is copied instead of shared, `toolbox` what starts programs in a tree that has nothing,
`entering` how they come in, `kept` brings back what was asked for; `walk` finds a path in a tree.
"""
