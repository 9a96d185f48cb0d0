"""What the pack asks of AWS: which volume a mount is, what it may do, and what it did while it was measured.

Only this package speaks to AWS, through ``clients``; boto3 is imported when the first call is made.
"""
