"""What the pack asks of AWS: which volume a mount is, its limits, and what it did during the measurement.

Only this package speaks to AWS, through ``clients``; boto3 is imported when the first call is made.
"""
