from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0002_initial"),
    ]

    operations = [
        migrations.AlterField(
            model_name="file",
            name="status",
            field=models.CharField(choices=[("processed", "Processed"), ("error", "Error")], max_length=10),
        ),
    ]
