"""Tasks on disks and as bytes: reading folders and archives without trusting them, packing them
into bytes that depend on their content alone, unpacking them where workers need them.

What a task is and whether it can run is said in trialog.proto.tasks; here is only what touches
files.
"""
